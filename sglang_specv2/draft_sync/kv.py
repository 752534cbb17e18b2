"""KV-only sync: the draft's K and V of many plain steps are written together.

The draft runs in no plain step, so its entries have until the next other step. Each plain step
leaves a row for each request (:mod:`sglang_specv2.draft_sync.backlog`); written together, they read
the draft's weights once instead of once a step, which is most of what an entry costs.

Invariant. *Before anything but a plain step of the same requests is launched, every pending entry
is written.* A prefill, a speculative step, and a plain step whose requests are not exactly those of
the last are preceded by :meth:`KVSync.catch_up`. Two things follow. Whoever reads the draft's KV
cache, or a prefix of it that was shared meanwhile, finds it complete. And no KV slot is pending
twice: it changes hands only when a request finishes, is aborted or is retracted, and then the
requests differ. The entries of a request that is gone go to slots that were its own when the step
ran; if one has been handed on since, its new owner's step is launched later on the same stream and
writes over it before reading it.

What resuming needs, the target's hidden state by request, is kept by request slot beside SGLang's
FutureMap, whose own fields carry which rows are pending: :mod:`sglang_specv2.draft_sync.proposals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_utils import _eagle_prefill_tail_tokens

from sglang_specv2.draft_sync.backlog import Backlog, PendingRows
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.draft_sync.extend import OneTokenExtend
from sglang_specv2.draft_sync.kv_projection import PROJECTIONS, KVProjection
from sglang_specv2.draft_sync.proposals import EmptyProposals, pending_rows

PROPOSAL_FIELDS = ("topk_p", "topk_index", "hidden_states", "draft_probs")

BACKLOG_ROWS = 1024
"""On an H200 and the 8B shape, writing 128 rows takes 26 us of 1024 at once, 30 of 512, 24 of 4096;
and a prefill after plain steps may have to write so many first."""


class KVSync(DraftSync):
    """Writes K and V only; attention, MLP and head of the draft wait until speculation resumes.

    Args:
        draft_runner: the draft's model runner; its model, KV pool and device are used.
        hidden_size: width of the target's hidden states that the draft reads.
        slots: request slots, slot 0 being padding; also the largest batch.
        extend: the one-token draft forward, for resuming.
        proposals: what a plain step relays.
        backlog_rows: rows that may be pending; a step that has more is written at once, as every
            step is with 0.
    """

    mode = "kv"
    leaves_pending = True

    def __init__(
        self,
        draft_runner: Any,
        hidden_size: int,
        slots: int,
        extend: OneTokenExtend,
        proposals: EmptyProposals,
        backlog_rows: int = BACKLOG_ROWS,
    ) -> None:
        self._draft_runner = draft_runner
        self._projection: KVProjection = PROJECTIONS[type(draft_runner.model).__name__](
            draft_runner.model
        )
        self._extend = extend
        self._proposals = proposals
        device, dtype = draft_runner.device, draft_runner.model_config.dtype
        self._hidden = torch.zeros((slots, hidden_size), dtype=dtype, device=device)
        self._backlog = Backlog(backlog_rows, hidden_size, dtype, device)
        self._requests: tuple[Any, ...] = ()
        self._resume = False

    @property
    def pending_steps(self) -> int:
        return self._backlog.steps

    def reset(self) -> None:
        self._backlog.clear()
        self._requests = ()

    def before_step(self, requests: Sequence[Any] | None) -> None:
        same = requests is not None and tuple(requests) == self._requests
        if not same or not self._backlog.has_room(len(self._requests)):
            self.catch_up()

    def catch_up(self) -> None:
        """Write every pending entry, if there is any."""
        if not self._backlog.rows:
            return
        rows = self._backlog.pending()
        self._write(rows)
        last = len(self._requests)
        self._hidden[rows.requests[-last:]] = rows.hidden_states[-last:]
        self.reset()

    def after_plain_step(
        self,
        batch: Any,
        out_cache_loc: torch.Tensor,
        hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        next_draft_input: Any,
    ) -> bool:
        requests = batch.req_pool_indices
        rows = PendingRows(hidden_states, out_cache_loc, batch.seq_lens, next_token_ids, requests)
        if self._backlog.has_room(len(batch.reqs)):
            self._backlog.add(rows)
            self._requests = tuple(batch.reqs)
        else:
            self._write(rows)
            self._hidden[requests] = hidden_states
        self._resume = True
        self._proposals.fill(next_draft_input, len(batch.reqs))
        return False

    def prefill(
        self, batch: Any, hidden_states: torch.Tensor, next_token_ids: torch.Tensor
    ) -> EagleDraftInput:
        """Write K and V of a prefill; its last row is left without a proposal, like a plain step's.

        Args:
            batch: SGLang's ScheduleBatch in extend mode.
            hidden_states: [tokens, width], of every token of the batch.
            next_token_ids: [bs], sampled after each request's last token.
        """
        lengths = torch.tensor(batch.extend_lens, dtype=torch.int64)
        last = lengths.cumsum(0) - 1
        # Within a request, token i of the whole batch sits at position i + shift.
        shift = torch.tensor(batch.prefix_lens, dtype=torch.int64) - (last + 1 - lengths)
        device = hidden_states.device
        positions = torch.arange(int(lengths.sum())) + shift.repeat_interleave(lengths)
        positions = positions.to(device, non_blocking=True)
        last = last.to(device, non_blocking=True)
        tokens = batch.input_ids.roll(-1)
        tokens[last] = _eagle_prefill_tail_tokens(batch, next_token_ids)
        embeds = self._projection.embed(tokens)
        self._store(batch.out_cache_loc, *self._projection(embeds, hidden_states, positions))
        self._hidden[batch.req_pool_indices] = hidden_states[last]
        self._resume = True
        draft_input = EagleDraftInput(
            bonus_tokens=next_token_ids, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
        )
        self._proposals.fill(draft_input, next_token_ids.shape[0])
        return draft_input

    @property
    def must_resume(self) -> bool:
        return self._resume

    def resume(self, batch: Any) -> None:
        self._resume = False
        draft_input = batch.spec_info
        pending = pending_rows(draft_input)
        requests = batch.req_pool_indices
        last = batch.seq_lens - 1
        slot = batch.req_to_token_pool.req_to_token[requests, last].to(torch.int64)
        proposal = self._extend.run(
            batch,
            hidden_states=self._hidden[requests],
            next_token_ids=draft_input.bonus_tokens.to(torch.int64),
            out_cache_loc=torch.where(pending, slot, 0),
            seq_lens=last,
            seq_lens_cpu=None if batch.seq_lens_cpu is None else batch.seq_lens_cpu - 1,
        )
        for name in PROPOSAL_FIELDS:
            fresh, kept = getattr(proposal, name), getattr(draft_input, name)
            if fresh is not None and kept is not None:
                merged = torch.where(pending[:, None], fresh, kept.to(fresh.dtype))
                setattr(draft_input, name, merged)

    def _write(self, rows: PendingRows) -> None:
        """Compute K and V of the rows, and store them."""
        embeds = self._projection.embed(rows.tokens.to(torch.int64))
        self._store(rows.slots, *self._projection(embeds, rows.hidden_states, rows.positions))

    def _store(self, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        layer = self._projection.attention.attn
        scales = () if layer.k_scale is None else (layer.k_scale, layer.v_scale)
        self._draft_runner.token_to_kv_pool.set_kv_buffer(layer, slots, k, v, *scales)
