"""One plain decode step, seen from a scheduler that expects a speculative one.

The scheduler of a speculating server reserves KV slots ahead, keeps ``seq_lens`` at the length
before the step, and reads results as runs of accepted tokens. A plain step fits into that as a run
of one: the bonus token of the last step is the input, position ``seq_lens`` its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt.managers.utils import GenerationBatchResult
from sglang.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sglang.srt.speculative.eagle_info import EagleDraftInput

from sglang_specv2.batch_checks import require_plain_rows
from sglang_specv2.batch_state import preserved
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.plain_decode import PlainDecodeRuntime
from sglang_specv2.step_ops import advance, relay


@dataclass
class PlainStepResult(GenerationBatchResult):
    """A result of stride one. The type tells it from a verify that accepted no draft.

    Attributes:
        drives_draft_last: the draft's runner was the last to read the batch's shared buffers.
        pending: the rows carry no proposal (:attr:`DraftSync.leaves_pending`).
    """

    drives_draft_last: bool = False
    pending: bool = False


class PlainStep:
    """Runs the target once per request and samples with SGLang's own sampler.

    Args:
        target_worker: SGLang's TpModelWorker of the target.
        runtime: the captured plain graphs and their attention backend.
        draft_sync: keeps the draft in step.
        num_draft_tokens: rows per request of a verify, to name an inflated batch.
        max_rows: largest batch.
    """

    def __init__(
        self,
        target_worker: Any,
        runtime: PlainDecodeRuntime,
        draft_sync: DraftSync,
        num_draft_tokens: int,
        max_rows: int,
    ) -> None:
        self._target = target_worker.model_runner
        self._runtime = runtime
        self._draft_sync = draft_sync
        self._num_draft_tokens = num_draft_tokens
        self._one_accepted = torch.ones(max_rows, dtype=torch.int32, device=self._target.device)
        self._compile()

    def _compile(self) -> None:
        """Run the kernels of a step once, so that no request waits for their compilation."""
        row = torch.zeros(1, dtype=torch.int64, device=self._target.device)
        advance(row, row, self._target.req_to_token_pool.req_to_token)
        for dtype in (torch.int32, torch.int64):
            relay(row.to(dtype), row, torch.zeros_like(row), torch.zeros_like(row[:, None]).float())

    def run(
        self,
        batch: Any,
        on_publish: Callable[[torch.Tensor], None] | None,
        grammar_barrier: Callable[[], None] | None,
        *,
        padded_rows: int | None,
    ) -> PlainStepResult:
        """Decode one token per request.

        Args:
            batch: SGLang's ScheduleBatch in decode mode; unchanged on return.
            on_publish: receives the lengths after the step, ``[bs]``, before the forward: a plain
                step accepts exactly one token, so nothing has to be waited for.
            grammar_barrier: brings grammars up to date with the previous step's tokens.
            padded_rows: size of the graph to replay, or None for the eager forward. A batch that
                SGLang's runner refuses (token embeddings replaced, padding disabled) runs eagerly.

        Raises:
            BatchShapeError: the batch was prepared for something else.
        """
        self._check(batch)
        requests = batch.req_pool_indices
        rows = requests.shape[0]
        new_seq_lens, out_cache_loc = advance(
            batch.seq_lens, requests, batch.req_to_token_pool.req_to_token
        )
        if on_publish is not None:
            on_publish(new_seq_lens)
        input_ids = batch.spec_info.bonus_tokens.to(torch.int64)

        with preserved(batch):
            batch.forward_mode = ForwardMode.DECODE
            batch.spec_info = None
            batch.input_ids = input_ids
            batch.out_cache_loc = out_cache_loc
            batch.seq_lens = new_seq_lens
            if batch.seq_lens_cpu is not None:
                batch.seq_lens_cpu = batch.seq_lens_cpu + 1
            batch.seq_lens_sum = None
            forward_batch = ForwardBatch.init_new(
                batch,
                self._target,
                capture_hidden_mode=CaptureHiddenMode.FULL,
                return_hidden_states_before_norm=False,
            )
        if padded_rows is not None and not self._runtime.can_replay(forward_batch):
            padded_rows = None
        with self._runtime.swapped_in(graphs=padded_rows is not None):
            output = self._target.forward(forward_batch)
        logits = output.logits_output
        if batch.has_grammar and grammar_barrier is not None:
            grammar_barrier()
        next_token_ids = self._target.sample(logits, forward_batch)
        if logits.next_token_logprobs is not None:
            # The scheduler reads a list of logprobs per request, one for each accepted token.
            logits.next_token_logprobs = logits.next_token_logprobs.view(rows, 1)

        next_draft_input = EagleDraftInput(bonus_tokens=next_token_ids)
        draft_last = self._draft_sync.after_plain_step(
            batch,
            out_cache_loc,
            logits.hidden_states,
            next_token_ids,
            next_draft_input,
        )
        return PlainStepResult(
            logits_output=logits,
            next_token_ids=next_token_ids,
            can_run_cuda_graph=output.can_run_graph,
            speculative_num_draft_tokens=1,
            next_draft_input=next_draft_input,
            accept_lens=self._one_accepted[:rows],
            new_seq_lens=new_seq_lens,
            routed_experts_output=output.routed_experts_output,
            indexer_topk_output=output.indexer_topk_output,
            expert_distribution_metrics=output.expert_distribution_metrics,
            # Read on the forward stream after this call returns; the scheduler keeps it two steps.
            extra_keep_alive_refs=[forward_batch],
            drives_draft_last=draft_last,
            pending=self._draft_sync.leaves_pending,
        )

    def _check(self, batch: Any) -> None:
        rows = {
            "seq_lens": batch.seq_lens.shape[0],
            "bonus_tokens": _rows(batch.spec_info, "bonus_tokens", "draft_token"),
        }
        if batch.input_ids is not None:
            rows["input_ids"] = batch.input_ids.shape[0]
        require_plain_rows(rows, batch.req_pool_indices.shape[0], self._num_draft_tokens)


def _rows(spec_info: Any, *names: str) -> int:
    for name in names:
        tensor = getattr(spec_info, name, None)
        if tensor is not None:
            return tensor.shape[0]
    return 0
