"""The CPU engine's attention against its plain definition, on ragged paged batches."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_specv2.cpu import reference
from sglang_specv2.cpu.attention import Segments, attend

CONTEXT = 12
HEADS, DIM, VALUE_DIM = 4, 3, 2
SCALE = 0.6


@st.composite
def batches(draw):
    """Requests of (query length, KV length), the queries being the last of the positions."""
    kv_lens = draw(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=4))
    return [(draw(st.integers(1, kv_len)), kv_len) for kv_len in kv_lens]


@settings(max_examples=60, deadline=None)
@given(batches(), st.sampled_from([1, 2, 4]), st.integers(0, 2**16))
def test_every_query_sees_its_own_request_up_to_itself(lengths, kv_heads, seed):
    generator = torch.Generator().manual_seed(seed)
    bs = len(lengths)
    slots = torch.randperm(bs * CONTEXT + 5, generator=generator)[: bs * CONTEXT]
    req_to_token = torch.zeros(bs + 3, CONTEXT, dtype=torch.int32)
    rows = torch.randperm(bs + 3, generator=generator)[:bs]
    req_to_token[rows] = slots.view(bs, CONTEXT).int()

    pool = bs * CONTEXT + 5
    keys = torch.full((pool, kv_heads, DIM), torch.nan)
    values = torch.full((pool, kv_heads, VALUE_DIM), torch.nan)
    for row, (_, kv_len) in zip(rows.tolist(), lengths, strict=True):
        held = req_to_token[row, :kv_len].long()
        keys[held] = torch.randn(kv_len, kv_heads, DIM, generator=generator)
        values[held] = torch.randn(kv_len, kv_heads, VALUE_DIM, generator=generator)
    query_lens = torch.tensor([q for q, _ in lengths])
    kv_lens = torch.tensor([kv for _, kv in lengths])
    query = torch.randn(int(query_lens.sum()), HEADS, DIM, generator=generator)

    segments = Segments.build(query_lens, kv_lens, rows, req_to_token)
    got = attend(query, keys, values, segments, SCALE)

    expected, token = [], 0
    for row, (query_len, kv_len) in zip(rows.tolist(), lengths, strict=True):
        for position in range(kv_len - query_len, kv_len):
            seen = req_to_token[row, : position + 1].long()
            for head in range(HEADS):
                kv_head = head * kv_heads // HEADS
                expected.append(
                    reference.attention(
                        query[token, head].tolist(),
                        keys[seen, kv_head].tolist(),
                        values[seen, kv_head].tolist(),
                        SCALE,
                    )
                )
            token += 1
    torch.testing.assert_close(
        got, torch.tensor(expected).view(-1, HEADS, VALUE_DIM), atol=1e-5, rtol=1e-5
    )
