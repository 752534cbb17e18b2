"""Full draft forward of one token: keeps any draft in step, and makes a proposal on resuming.

The draft worker's own extend runs at ``num_draft_tokens`` rows per request. Here the same code runs
at one row, with an attention backend and CUDA graphs of its own. Where SGLang captures no graphs of
a draft extend (fa3, for one), this has none either.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.speculative.eagle_info import EagleDraftInput

from sglang_specv2.batch_state import preserved
from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.capture_room import require_room
from sglang_specv2.capture_width import rows_per_request
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.errors import CaptureError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _ExtendState:
    """The parts of SGLang's draft worker that depend on the rows per request."""

    draft_extend_attn_backend: Any
    runner_attn_backend: Any
    graph_runner: Any

    @classmethod
    def of(cls, draft_worker: Any) -> _ExtendState:
        return cls(
            draft_worker.draft_extend_attn_backend,
            draft_worker.draft_runner.attn_backend,
            draft_worker.cuda_graph_runner_for_draft_extend,
        )

    def apply(self, draft_worker: Any) -> None:
        draft_worker.draft_extend_attn_backend = self.draft_extend_attn_backend
        draft_worker.draft_runner.attn_backend = self.runner_attn_backend
        draft_worker.cuda_graph_runner_for_draft_extend = self.graph_runner


class OneTokenExtend:
    """The draft's full forward of one token per request.

    Args:
        worker: the EAGLE worker; its draft worker lends model, pools and code.
        failures: decides what becomes of a capture that fails.

    Raises:
        CaptureError: SGLang could not capture the graphs, or captured them at another width.
    """

    def __init__(self, worker: Any, failures: CaptureFailures) -> None:
        self._draft_worker = draft = worker.draft_worker
        start, failed_before = time.perf_counter(), len(failures.reasons)
        with worker._override_worker_state(0, 1), rows_per_request(draft.draft_runner, 1):
            failures.attempt(
                "the attention of a draft extend of one token",
                draft.init_attention_backend,
                required=True,
            )

            def capture() -> None:
                # As SGLang does before it captures: where there is no room, or the capture fails,
                # the graphs of a verify's rows are not to be taken for these.
                draft.cuda_graph_runner_for_draft_extend = None
                require_room(worker.target_worker.model_runner)
                draft._capture_cuda_graphs()

            failures.attempt("the draft extend of one token", capture)
            self._state = _ExtendState.of(draft)
        graphs = self._state.graph_runner
        if len(failures.reasons) > failed_before:
            return
        if graphs is None:
            logger.info("One-token draft extend: eager; SGLang captures none for this backend.")
            return
        if graphs.captured_req_width != 1:
            raise CaptureError(
                "the graphs of the one-token draft extend: expected 1 row per request, got "
                f"{graphs.captured_req_width}. This SGLang takes the width from elsewhere; "
                "run `sglang-specv2 doctor`."
            )
        logger.info(
            "One-token draft extend: captured %d graphs in %.2f s.",
            len(graphs.capture_bs),
            time.perf_counter() - start,
        )

    def run(
        self,
        batch: Any,
        *,
        hidden_states: torch.Tensor,  # [bs, width of the target's states that the draft reads]
        next_token_ids: torch.Tensor,  # [bs], int64: the token after each processed position
        out_cache_loc: torch.Tensor,  # [bs], int64: where each K and V goes
        seq_lens: torch.Tensor,  # [bs]: length before the processed position
        seq_lens_cpu: torch.Tensor | None,
    ) -> EagleDraftInput:
        """Write K and V of one position per request; return the proposals that follow from it."""
        result = GenerationBatchResult(
            logits_output=LogitsProcessorOutput(
                next_token_logits=None, hidden_states=hidden_states
            ),
            accept_lens=torch.ones_like(next_token_ids, dtype=torch.int32),
            next_token_ids=next_token_ids,
            next_draft_input=EagleDraftInput(),
        )
        with preserved(batch), self._one_token():
            batch.seq_lens = seq_lens
            batch.seq_lens_cpu = seq_lens_cpu
            batch.seq_lens_sum = None if seq_lens_cpu is None else int(seq_lens_cpu.sum())
            batch.out_cache_loc = out_cache_loc
            self._draft_worker._draft_extend_for_decode(batch, result)
        return result.next_draft_input

    @contextmanager
    def _one_token(self) -> Iterator[None]:
        worker = self._draft_worker
        speculative, width = _ExtendState.of(worker), worker.speculative_num_draft_tokens
        self._state.apply(worker)
        worker.speculative_num_draft_tokens = 1
        try:
            yield
        finally:
            speculative.apply(worker)
            worker.speculative_num_draft_tokens = width


class ExtendSync(DraftSync):
    """Run the whole draft for a token in every plain step: right for every draft, never pending."""

    mode = "extend"

    def __init__(self, extend: OneTokenExtend) -> None:
        self._extend = extend

    def after_plain_step(
        self,
        batch: Any,
        out_cache_loc: torch.Tensor,
        hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        next_draft_input: Any,
    ) -> bool:
        proposal = self._extend.run(
            batch,
            hidden_states=hidden_states,
            next_token_ids=next_token_ids.to(torch.int64),
            out_cache_loc=out_cache_loc,
            seq_lens=batch.seq_lens,
            seq_lens_cpu=batch.seq_lens_cpu,
        )
        copy_proposal(proposal, next_draft_input)
        return True


def copy_proposal(source: Any, target: Any) -> None:
    """Copy the fields that make up a proposal from one EagleDraftInput to another."""
    target.topk_p = source.topk_p
    target.topk_index = source.topk_index
    target.hidden_states = source.hidden_states
    target.draft_probs = source.draft_probs
    target.dsa_topk_indices = source.dsa_topk_indices
