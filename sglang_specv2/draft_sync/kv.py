"""KV-only sync: each plain step first writes the draft's K and V that the previous plain step left.

Invariant. *A pending entry is written by the next step that is launched, whatever that step is,
before anything else in it.* A plain graph large enough writes it on a side branch of its own
capture; any other step is preceded by a flush. So at most the rows of the last plain step are ever
pending, and by position in that step's batch, not by request: it does not matter whether a request
finished, was aborted or retracted, or gave its prefix to the radix cache in between. The slot of
such a row was the request's when the entry was staged; if it has been handed to another request
since, that request's own step, launched later on the same stream, writes over it before reading it.
Each entry is written exactly once, since a second write could come after that.

What resuming needs, the target's hidden state by request, is kept by request slot beside SGLang's
FutureMap, whose own fields carry which rows are pending: :mod:`sglang_specv2.draft_sync.proposals`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from sglang.srt.speculative.eagle_info import EagleDraftInput
from sglang.srt.speculative.eagle_utils import _eagle_prefill_tail_tokens

from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.draft_sync.extend import OneTokenExtend
from sglang_specv2.draft_sync.kv_projection import PROJECTIONS, KVProjection
from sglang_specv2.draft_sync.proposals import EmptyProposals, pending_rows

PROPOSAL_FIELDS = ("topk_p", "topk_index", "hidden_states", "draft_probs")


class KVSync(DraftSync):
    """Writes K and V only; attention, MLP and head of the draft wait until speculation resumes.

    Args:
        draft_runner: the draft's model runner; its model, KV pool and device are used.
        hidden_size: width of the target's hidden states that the draft reads.
        slots: request slots, slot 0 being padding; also the largest batch.
        extend: the one-token draft forward, for resuming.
        proposals: what a plain step relays.
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
    ) -> None:
        self._draft_runner = draft_runner
        self._projection: KVProjection = PROJECTIONS[type(draft_runner.model).__name__](
            draft_runner.model
        )
        self._extend = extend
        self._proposals = proposals
        self._embedding_is_shared = draft_runner.ps.tp_size > 1
        device, dtype = draft_runner.device, draft_runner.model_config.dtype
        self._hidden = torch.zeros((slots, hidden_size), dtype=dtype, device=device)

        # What the last plain step left, by position in its batch: KV slot, position, request slot.
        # A KV slot of 0, SGLang's padding slot, is nothing to write.
        self._staged = torch.zeros((slots, 3), dtype=torch.int64, device=device)
        self._token = torch.zeros((slots,), dtype=torch.int64, device=device)
        self._staged_rows = 0
        self._pending = 0
        self._resume = False
        self._side_stream = (
            torch.cuda.Stream(device=device) if torch.device(device).type == "cuda" else None
        )

    @contextmanager
    def branch(self, rows: int) -> Iterator[None]:
        if self._side_stream is None or not torch.cuda.is_current_stream_capturing():
            self._write(rows)
            yield
            return
        # With tensor parallelism the embedding is a collective: the main stream keeps its order
        # among the ranks.
        embeds = self._projection.embed(self._token[:rows]) if self._embedding_is_shared else None
        main = torch.cuda.current_stream()
        self._side_stream.wait_stream(main)
        with torch.cuda.stream(self._side_stream):
            self._write(rows, embeds)
        yield
        main.wait_stream(self._side_stream)

    def stage(
        self,
        hidden_states: torch.Tensor,
        req_pool_indices: torch.Tensor,
        out_cache_loc: torch.Tensor,
        positions: torch.Tensor,
    ) -> None:
        rows = req_pool_indices.shape[0]
        self._hidden[req_pool_indices] = hidden_states
        torch.stack((out_cache_loc, positions, req_pool_indices), dim=1, out=self._staged[:rows])
        self._staged_rows = rows

    def reset(self) -> None:
        self._staged.zero_()
        self._staged_rows = 0
        self._pending = 0

    def before_step(self, rows: int | None) -> None:
        if self._pending and (rows is None or rows < self._pending):
            self._write(self._pending)
            self._staged_rows = 0
        self._pending = 0
        if rows is None:
            return
        if rows > self._staged_rows:
            # Rows past those just staged still hold what an earlier, larger batch left there.
            self._staged[self._staged_rows : rows].zero_()
        # The replay to come stages its own, padding included.
        self._staged_rows = rows

    def after_plain_step(
        self,
        batch: Any,
        out_cache_loc: torch.Tensor,
        hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        next_draft_input: Any,
    ) -> bool:
        rows = next_token_ids.shape[0]
        self._token[:rows].copy_(next_token_ids)
        self._pending = rows
        self._resume = True
        self._proposals.fill(next_draft_input, rows)
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

    def before_speculative_step(self, batch: Any) -> bool:
        if not self._resume:
            return False
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
        return True

    def _write(self, rows: int, embeds: torch.Tensor | None = None) -> None:
        """Compute and store K and V of the first ``rows`` rows of the last plain step."""
        if embeds is None:
            embeds = self._projection.embed(self._token[:rows])
        slots, positions, requests = self._staged[:rows].t().contiguous()
        self._store(slots, *self._projection(embeds, self._hidden[requests], positions))

    def _store(self, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        layer = self._projection.attention.attn
        scales = () if layer.k_scale is None else (layer.k_scale, layer.v_scale)
        self._draft_runner.token_to_kv_pool.set_kv_buffer(layer, slots, k, v, *scales)
