"""The few tensor operations between two plain graphs, each a single kernel on a GPU.

A plain step of a small batch takes a few milliseconds, and everything outside its graph is launched
one by one on the same stream: here each launch counts. :func:`advance`, :func:`relay` and
:func:`stage` are what the plain definitions beside them say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def advance(
    seq_lens: torch.Tensor,  # [bs], int64
    req_pool_indices: torch.Tensor,  # [bs], int64
    req_to_token: torch.Tensor,  # [request slots, positions], int32
) -> tuple[torch.Tensor, torch.Tensor]:
    """Lengths after the step and KV slots of the new position, both ``[bs]`` int64."""
    if seq_lens.is_cuda:
        from sglang_specv2 import step_kernels

        return step_kernels.advance(seq_lens, req_pool_indices, req_to_token)
    return advance_reference(seq_lens, req_pool_indices, req_to_token)


def advance_reference(
    seq_lens: torch.Tensor, req_pool_indices: torch.Tensor, req_to_token: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The definition of :func:`advance`."""
    return seq_lens + 1, req_to_token[req_pool_indices, seq_lens].to(torch.int64)


def relay(
    token_ids: torch.Tensor,  # [bs], any integer
    req_pool_indices: torch.Tensor,  # [bs], int64
    relayed_token_ids: torch.Tensor,  # [request slots], int64, written
    relayed_probability: torch.Tensor,  # [request slots, topk], float32, written
) -> None:
    """Relay the tokens of pending rows: the token, and a first proposal of probability zero."""
    if token_ids.is_cuda:
        from sglang_specv2 import step_kernels

        step_kernels.relay(token_ids, req_pool_indices, relayed_token_ids, relayed_probability)
    else:
        relay_reference(token_ids, req_pool_indices, relayed_token_ids, relayed_probability)


def relay_reference(
    token_ids: torch.Tensor,
    req_pool_indices: torch.Tensor,
    relayed_token_ids: torch.Tensor,
    relayed_probability: torch.Tensor,
) -> None:
    """The definition of :func:`relay`."""
    relayed_token_ids[req_pool_indices] = token_ids.to(relayed_token_ids.dtype)
    relayed_probability[req_pool_indices, 0] = 0.0


def stage(
    hidden_states: torch.Tensor,  # [bs, width]
    integers: Sequence[torch.Tensor],  # four of [bs], any integer
    to_hidden_states: torch.Tensor,  # [capacity, width], written
    to_integers: torch.Tensor,  # [4, capacity], int64, written
    first: int,
) -> None:
    """Copy the rows of a step to the rows of two buffers, from row ``first`` on."""
    if hidden_states.is_cuda:
        from sglang_specv2 import step_kernels

        copy = step_kernels.stage
    else:
        copy = stage_reference
    copy(hidden_states, integers, to_hidden_states, to_integers, first)


def stage_reference(
    hidden_states: torch.Tensor,
    integers: Sequence[torch.Tensor],
    to_hidden_states: torch.Tensor,
    to_integers: torch.Tensor,
    first: int,
) -> None:
    """The definition of :func:`stage`."""
    rows = slice(first, first + hidden_states.shape[0])
    to_hidden_states[rows] = hidden_states
    for column, values in zip(to_integers, integers, strict=True):
        column[rows] = values
