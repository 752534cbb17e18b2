"""Torch versions of the Triton kernels of SGLang's paged allocator (page_size above 1)."""

import torch
from torch import Tensor

from sglang_specv2.cpu.kernels import ragged_index


def alloc_extend(
    prefix_lens: Tensor,
    seq_lens: Tensor,
    last_loc: Tensor,
    free_pages: Tensor,
    out_indices: Tensor,
    bs_upper: int,
    page_size: int,
) -> None:
    """Gives a KV slot to the positions ``prefix_lens[i] .. seq_lens[i] - 1`` of every request.

    A request goes on in the page of its last slot, ``last_loc[i]``, and then takes pages from the
    front of ``free_pages``, request after request. ``prefix_lens``, ``seq_lens``, ``last_loc``:
    integer ``[bs]``; ``out_indices``: int64 ``[sum(seq_lens - prefix_lens)]``, written. With too
    few free pages nothing is written: SGLang counts them afterwards and drops the result.
    """
    request, position = ragged_index(torch.arange(len(seq_lens)), prefix_lens, seq_lens)
    pages_held = (prefix_lens + page_size - 1) // page_size
    pages_taken = (seq_lens + page_size - 1) // page_size - pages_held
    if int(pages_taken.sum()) > len(free_pages):
        return
    first_taken = torch.cumsum(pages_taken, 0) - pages_taken
    page = position // page_size - pages_held[request]
    goes_on = page < 0
    out_indices.copy_(last_loc[request] + 1 + position - prefix_lens[request])
    taken = free_pages[(first_taken[request] + page)[~goes_on]]
    out_indices[~goes_on] = taken * page_size + position[~goes_on] % page_size


def alloc_decode(
    seq_lens: Tensor,
    last_loc: Tensor,
    free_pages: Tensor,
    out_indices: Tensor,
    bs_upper: int,
    page_size: int,
) -> None:
    """:func:`alloc_extend` by one position each, the last of ``seq_lens``."""
    alloc_extend(seq_lens - 1, seq_lens, last_loc, free_pages, out_indices, bs_upper, page_size)
