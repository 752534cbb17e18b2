"""Triton kernels of :mod:`sglang_specv2.step_ops`; imported on a GPU only."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

BLOCK, WIDE_BLOCK = 128, 4096


# One compilation serves every batch size.
@triton.jit(do_not_specialize=["rows"])
def _advance(
    seq_lens,
    requests,
    table,
    table_stride,
    new_lens,
    slots,
    rows,
    block: tl.constexpr,
):
    row = tl.program_id(0) * block + tl.arange(0, block)
    live = row < rows
    length = tl.load(seq_lens + row, mask=live, other=0)
    request = tl.load(requests + row, mask=live, other=0).to(tl.int64)
    slot = tl.load(table + request * table_stride + length, mask=live, other=0)
    tl.store(new_lens + row, length + 1, mask=live)
    tl.store(slots + row, slot.to(tl.int64), mask=live)


@triton.jit(do_not_specialize=["rows"])
def _relay(
    tokens,
    requests,
    relayed_tokens,
    relayed_probability,
    probability_stride,
    rows,
    block: tl.constexpr,
):
    row = tl.program_id(0) * block + tl.arange(0, block)
    live = row < rows
    token = tl.load(tokens + row, mask=live, other=0).to(tl.int64)
    request = tl.load(requests + row, mask=live, other=0).to(tl.int64)
    zero = tl.zeros([block], dtype=tl.float32)
    tl.store(relayed_tokens + request, token, mask=live)
    tl.store(relayed_probability + request * probability_stride, zero, mask=live)


# Slots of a prefill may begin anywhere in a tensor.
@triton.jit(
    do_not_specialize=["first"],
    do_not_specialize_on_alignment=["slots", "positions", "tokens", "requests"],
)
def _stage(
    hidden,
    slots,
    positions,
    tokens,
    requests,
    to_hidden,
    to_integers,
    hidden_stride,
    to_hidden_stride,
    integer_stride,
    width,
    first,
    block: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    to_row = first + row
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < width
    state = tl.load(hidden + row * hidden_stride + column, mask=inside)
    to = to_hidden + to_row * to_hidden_stride + column
    tl.store(to, state.to(to_hidden.dtype.element_ty), mask=inside)
    if tl.program_id(1) == 0:
        tl.store(to_integers + to_row, tl.load(slots + row).to(tl.int64))
        tl.store(to_integers + integer_stride + to_row, tl.load(positions + row).to(tl.int64))
        tl.store(to_integers + 2 * integer_stride + to_row, tl.load(tokens + row).to(tl.int64))
        tl.store(to_integers + 3 * integer_stride + to_row, tl.load(requests + row).to(tl.int64))


def advance(
    seq_lens: torch.Tensor, req_pool_indices: torch.Tensor, req_to_token: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """See :func:`sglang_specv2.step_ops.advance`."""
    rows = seq_lens.shape[0]
    new_lens, slots = torch.empty_like(seq_lens), torch.empty_like(seq_lens, dtype=torch.int64)
    _advance[(triton.cdiv(rows, BLOCK),)](
        seq_lens,
        req_pool_indices,
        req_to_token,
        req_to_token.stride(0),
        new_lens,
        slots,
        rows,
        block=BLOCK,
    )
    return new_lens, slots


def relay(
    token_ids: torch.Tensor,
    req_pool_indices: torch.Tensor,
    relayed_token_ids: torch.Tensor,
    relayed_probability: torch.Tensor,
) -> None:
    """See :func:`sglang_specv2.step_ops.relay`."""
    rows = token_ids.shape[0]
    _relay[(triton.cdiv(rows, BLOCK),)](
        token_ids,
        req_pool_indices,
        relayed_token_ids,
        relayed_probability,
        relayed_probability.stride(0),
        rows,
        block=BLOCK,
    )


def stage(
    hidden_states: torch.Tensor,
    integers: Sequence[torch.Tensor],
    to_hidden_states: torch.Tensor,
    to_integers: torch.Tensor,
    first: int,
) -> None:
    """See :func:`sglang_specv2.step_ops.stage`. The last dimension of all must be contiguous."""
    rows, width = hidden_states.shape
    _stage[(rows, triton.cdiv(width, WIDE_BLOCK))](
        hidden_states,
        *integers,
        to_hidden_states,
        to_integers,
        hidden_states.stride(0),
        to_hidden_states.stride(0),
        to_integers.stride(0),
        width,
        first,
        block=WIDE_BLOCK,
    )
