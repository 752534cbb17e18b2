"""Writes the draft's K and V of all live requests after every decode step, while a folder exists.

A file per step and rank holds, for each request, K and V of the positions whose entries must be
there by then: all before the position that the step began with, up to the first that is pending.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch


def install(folder: str) -> None:
    from sglang_specv2.worker import SpecV2Worker

    out = Path(folder)
    numbers = itertools.count()
    original = SpecV2Worker.forward_batch_generation

    def forward(worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        wanted = batch.forward_mode.is_decode() and out.exists()
        lengths = batch.seq_lens.tolist() if wanted else []
        result = original(worker, batch, *args, **kwargs)
        if wanted:
            name = f"{next(numbers):06d}-rank{worker.ps.tp_rank}.pt"
            whole = out.with_name(name)
            torch.save(_entries(worker, batch, lengths), whole)
            try:
                whole.rename(out / name)
            except FileNotFoundError:  # With overlap a step runs on when its requests have ended.
                whole.unlink()
        return result

    SpecV2Worker.forward_batch_generation = forward


def _pending_slots(worker: Any) -> torch.Tensor:
    backlog = getattr(worker.draft_sync, "_backlog", None)
    if backlog is None:
        return torch.empty(0, dtype=torch.int64, device=worker.device)
    return backlog.pending().slots


def _entries(
    worker: Any, batch: Any, lengths: list[int]
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """By request: K and V, [length, kv heads of this rank, head dim], float32, on the CPU."""
    pool = worker.draft_worker.draft_runner.token_to_kv_pool
    table = batch.req_to_token_pool.req_to_token
    pending, entries = _pending_slots(worker), {}
    for request, row, length in zip(batch.reqs, batch.req_pool_indices, lengths, strict=True):
        slots = table[row, :length].long()
        slots = slots[: int(torch.isin(slots, pending).int().cumsum(0).eq(0).sum())]
        key, value = pool.get_key_buffer(0)[slots], pool.get_value_buffer(0)[slots]
        entries[request.rid] = key.float().cpu(), value.float().cpu()
    return entries
