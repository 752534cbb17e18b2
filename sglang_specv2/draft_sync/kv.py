"""KV-only sync: the draft's K and V of many plain steps are written together.

Nobody reads the draft's KV cache while decode is plain, so an entry has until then. Plain steps,
and prefills among them, leave rows (:mod:`sglang_specv2.draft_sync.backlog`); written together,
they read the draft's weights once instead of once a step, which is most of what an entry costs. And
they are written where the host has time: behind the launch of a plain step, not before a prefill,
whose first tokens wait for the host.

Invariant. *Before the draft's KV cache is read, every pending entry is written, in the order of the
steps that left them.* It is read by a speculative step and by the draft's own prefill; both come
behind :meth:`KVSync.catch_up`. Two things follow. Whoever reads it, or a prefix of it that was
shared meanwhile, finds it complete. And a KV slot that changed hands, because a request finished,
was aborted or retracted, ends with the entry of its last owner: rows that may name the same slot
are of different groups, and a group is stored behind the one before it.

What resuming needs, the target's hidden state by request, is kept by request slot beside SGLang's
FutureMap, whose own fields carry which rows are pending: :mod:`sglang_specv2.draft_sync.proposals`.
It too is kept in order, at the latest when other requests come.
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

BACKLOG_ROWS = 2048
"""Half of them is written together: on an H200 and the 8B shape, writing 128 rows takes 26 us of
1024 at once, 30 of 512, 24 of 4096. The other half is room for prefills meanwhile."""


class KVSync(DraftSync):
    """Writes K and V only; attention, MLP and head of the draft wait until speculation resumes.

    Args:
        draft_runner: the draft's model runner; its model, KV pool and device are used.
        hidden_size: width of the target's hidden states that the draft reads.
        slots: request slots, slot 0 being padding; also the largest batch.
        extend: the one-token draft forward, for resuming.
        proposals: what a plain step relays.
        backlog_rows: rows that may be pending; what has more is written at once, as every step and
            prefill is with 0.
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
        self._enough_rows = (backlog_rows + 1) // 2
        self._requests: tuple[Any, ...] = ()
        """Those of the last plain step, where its rows are the last of the backlog."""
        self._resume = False

    def reset(self) -> None:
        self._backlog.clear()
        self._requests = ()

    def catch_up(self) -> None:
        if not self._backlog.rows:
            return
        self._keep_hidden()
        self._write(self._backlog.pending(), self._backlog.groups())
        self.reset()

    def after_plain_step(
        self,
        batch: Any,
        out_cache_loc: torch.Tensor,
        hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        next_draft_input: Any,
    ) -> bool:
        live, requests = tuple(batch.reqs), batch.req_pool_indices
        if live != self._requests:
            self._other_requests()
        elif self._backlog.rows >= self._enough_rows:
            # The first step of other requests runs before anyone has looked at their first tokens.
            self.catch_up()
        rows = PendingRows(hidden_states, out_cache_loc, batch.seq_lens, next_token_ids, requests)
        self._add_or_write(rows)
        if self._backlog.rows:
            self._requests = live
        else:
            self._hidden[requests] = hidden_states
        self._resume = True
        self._proposals.fill(next_draft_input, len(live))
        return False

    def prefill(
        self, batch: Any, hidden_states: torch.Tensor, next_token_ids: torch.Tensor
    ) -> EagleDraftInput:
        """Leave or write K and V of a prefill; its last row is left without a proposal, like a
        plain step's.

        Args:
            batch: SGLang's ScheduleBatch in extend mode.
            hidden_states: [tokens, width], of every token of the batch.
            next_token_ids: [bs], sampled after each request's last token.
        """
        lengths = torch.tensor(batch.extend_lens, dtype=torch.int64)
        last = lengths.cumsum(0) - 1
        # Within a request, token i of the whole batch sits at position i + shift.
        shift = torch.tensor(batch.prefix_lens, dtype=torch.int64) - (last + 1 - lengths)
        row = torch.arange(len(lengths)).repeat_interleave(lengths)
        positions = torch.arange(len(row)) + shift[row]
        packed = _on_device(torch.cat((positions, row, last)), hidden_states.device)
        positions, row, last = packed.split([len(row), len(row), len(lengths)])
        tokens = batch.input_ids.roll(-1)
        tokens[last] = _eagle_prefill_tail_tokens(batch, next_token_ids)
        requests = batch.req_pool_indices
        self._other_requests()
        self._add_or_write(
            PendingRows(hidden_states, batch.out_cache_loc, positions, tokens, requests[row])
        )
        self._hidden[requests] = hidden_states[last]
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

    def _other_requests(self) -> None:
        """Others than those of the last plain step come, perhaps with slots that were theirs."""
        self._keep_hidden()
        self._backlog.begin_group()
        self._requests = ()

    def _keep_hidden(self) -> None:
        """Keep what resuming the requests of the last plain step would need."""
        last = len(self._requests)
        if last:
            rows = self._backlog.pending()
            self._hidden[rows.requests[-last:]] = rows.hidden_states[-last:]

    def _add_or_write(self, rows: PendingRows) -> None:
        """Leave rows of one step, or write them where even an empty backlog has no room."""
        count = rows.slots.shape[0]
        if not self._backlog.has_room(count):
            self.catch_up()
        if self._backlog.has_room(count):
            self._backlog.add(rows)
        else:
            self._write(rows, [slice(count)])

    def _write(self, rows: PendingRows, groups: Sequence[slice]) -> None:
        """Compute K and V of the rows, and store them group by group."""
        embeds = self._projection.embed(rows.tokens.to(torch.int64))
        k, v = self._projection(embeds, rows.hidden_states, rows.positions)
        layer = self._projection.attention.attn
        scales = () if layer.k_scale is None else (layer.k_scale, layer.v_scale)
        pool = self._draft_runner.token_to_kv_pool
        for group in groups:
            pool.set_kv_buffer(layer, rows.slots[group], k[group], v[group], *scales)


def _on_device(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy there. From memory that is not pinned a GPU takes more than 64 KiB only once it has
    done all before, and the host waits for it."""
    if device.type == "cuda":
        values = values.pin_memory()
    return values.to(device, non_blocking=True)
