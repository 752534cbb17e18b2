"""A decode batch that no user sent, for timing steps before the server takes requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_spec
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.speculative.eagle_info import EagleDraftInput


@contextmanager
def made_up_batch(
    worker: Any, draft_state: EagleDraftInput, batch_size: int, context: int, room: int
) -> Iterator[ScheduleBatch]:
    """Greedy requests in decode, each ``context`` tokens long.

    Their KV slots go round the whole pool, so that attention reads memory and not a cache, and the
    rows of the request table are zeroed again afterwards. Only for an idle server: whatever the
    slots hold is overwritten.

    Args:
        worker: the EAGLE worker; lends pools and configuration.
        draft_state: what a step relays to the next, for ``batch_size`` requests.
        batch_size: requests; at most the rows of the request table less one.
        context: tokens of each.
        room: positions past the context that a step may write.
    """
    table = worker.req_to_token_pool.req_to_token
    requests = torch.arange(1, batch_size + 1, device=table.device)
    table[1 : batch_size + 1, : context + room] = _slots(worker, batch_size, context + room)
    lengths = torch.full((batch_size,), context, dtype=torch.int64)
    batch = ScheduleBatch(
        reqs=[_Request(number) for number in range(batch_size)],
        req_to_token_pool=worker.req_to_token_pool,
        token_to_kv_pool_allocator=worker.token_to_kv_pool_allocator,
        model_config=worker.target_worker.model_config,
        enable_overlap=True,
        device=table.device.type,
        req_pool_indices=requests,
        seq_lens=lengths.to(table.device),
        orig_seq_lens=lengths.to(table.device, torch.int32),
        seq_lens_cpu=lengths,
        seq_lens_sum=int(lengths.sum()),
        forward_mode=ForwardMode.DECODE,
        spec_algorithm=worker.speculative_algorithm,
        sampling_info=_greedy(worker, batch_size),
        spec_info=draft_state,
    )
    try:
        yield batch
    finally:
        table[1 : batch_size + 1].zero_()


def draft_state(worker: Any, batch_size: int, hidden_size: int, dtype: Any) -> EagleDraftInput:
    """Proposals as a speculative step leaves them; their values do not matter to its time."""
    device, topk = worker.device, worker.topk
    return EagleDraftInput(
        bonus_tokens=torch.ones(batch_size, dtype=torch.int32, device=device),
        topk_p=torch.full((batch_size, topk), 1.0 / topk, dtype=torch.float32, device=device),
        topk_index=torch.ones((batch_size, topk), dtype=torch.int64, device=device),
        hidden_states=torch.zeros((batch_size, hidden_size), dtype=dtype, device=device),
        draft_probs=_draft_probs(worker, batch_size),
    )


def _draft_probs(worker: Any, batch_size: int) -> torch.Tensor | None:
    """The relayed distribution of the draft, ``[bs, vocabulary]``, with rejection sampling."""
    if not get_spec().speculative_use_rejection_sampling:
        return None
    vocabulary = worker.target_worker.model_config.vocab_size
    return torch.full((batch_size, vocabulary), 1.0 / vocabulary, device=worker.device)


def _slots(worker: Any, rows: int, positions: int) -> torch.Tensor:
    """``[rows, positions]`` int32: whole pages, one request behind the other, round the pool."""
    kv_allocator = worker.token_to_kv_pool_allocator
    page = kv_allocator.page_size
    pages = kv_allocator.size // page
    pages_per_row = -(-positions // page)
    device = worker.req_to_token_pool.req_to_token.device
    row_pages = torch.arange(rows * pages_per_row, device=device).view(rows, -1) % pages
    # Page 0 is SGLang's padding.
    slots = (row_pages[:, :, None] + 1) * page + torch.arange(page, device=device)
    return slots.flatten(1)[:, :positions].to(torch.int32)


class _Request:
    """What a step reads of a request; like SGLang's, each is equal to itself alone."""

    lora_id = token_type_ids = None

    def __init__(self, number: int) -> None:
        self.rid = f"calibration-{number}"


def _greedy(worker: Any, batch_size: int) -> SamplingBatchInfo:
    device = worker.device
    return SamplingBatchInfo(
        temperatures=torch.ones((batch_size, 1), device=device),
        top_ps=torch.ones(batch_size, device=device),
        top_ks=torch.ones(batch_size, dtype=torch.int32, device=device),
        min_ps=torch.zeros(batch_size, device=device),
        is_all_greedy=True,
        is_any_greedy=True,
        need_top_p_sampling=False,
        need_top_k_sampling=False,
        need_min_p_sampling=False,
        vocab_size=worker.target_worker.model_config.vocab_size,
        device=device,
    )
