"""The Triton kernels of a step against their plain definitions."""

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: the kernels are Triton's"
)


@pytest.mark.parametrize("rows", [1, 7, 128, 129, 300])
def test_the_kernels_do_what_their_definitions_say(rows):
    from sglang_specv2 import step_ops

    table = torch.randint(0, 10000, (400, 64), dtype=torch.int32, device="cuda")
    requests = torch.randperm(400, device="cuda")[:rows]
    lengths = torch.randint(0, 63, (rows,), device="cuda")
    for got, want in zip(
        step_ops.advance(lengths, requests, table),
        step_ops.advance_reference(lengths, requests, table),
        strict=True,
    ):
        assert got.dtype == want.dtype
        assert torch.equal(got, want)

    for dtype in (torch.int32, torch.int64):
        tokens = torch.randint(0, 99, (rows,), dtype=dtype, device="cuda")
        relayed = torch.randint(0, 9, (400,), device="cuda")
        probability = torch.rand(400, 3, device="cuda")
        wanted = relayed.clone(), probability.clone()
        step_ops.relay(tokens, requests, relayed, probability)
        step_ops.relay_reference(tokens, requests, *wanted)
        assert torch.equal(relayed, wanted[0])
        assert torch.equal(probability, wanted[1])

        for width, first in ((12288, 0), (100, 5), (4097, 99)):
            hidden = torch.rand(rows, width, device="cuda").to(torch.bfloat16)
            unaligned = torch.randint(0, 2**40, (3, rows + 1), device="cuda")[:, 1:]
            integers = [tokens, *unaligned]
            to = [torch.zeros(rows + 99, width, dtype=torch.bfloat16, device="cuda")]
            to.append(torch.zeros(4, rows + 99, dtype=torch.int64, device="cuda"))
            expected = [buffer.clone() for buffer in to]
            step_ops.stage(hidden, integers, *to, first)
            step_ops.stage_reference(hidden, integers, *expected, first)
            assert all(map(torch.equal, to, expected))
