"""The worker SGLang runs in place of EAGLEWorkerV2.

It is EAGLEWorkerV2 while speculating. Before every decode step the policy names a mode from the
number of live requests, the selector names the graph family for it, and that family runs the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, cast

from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from cuda_graphs import CaptureSizes, Selector
from sglang_specv2 import compat
from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.config import SpecV2Config, validate_against_server
from sglang_specv2.counters import StepCounters
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.draft_sync.build import build_draft_sync
from sglang_specv2.draft_sync.proposals import nan_check
from sglang_specv2.plain_decode import PlainDecodeRuntime
from sglang_specv2.plain_step import PlainStep, PlainStepResult
from sglang_specv2.policy import Mode, build

logger = logging.getLogger(__name__)

Step = Callable[..., Any]

NAN_CHECK = "specv2_nan_check"
"""The attribute of a speculative step's result that holds what :func:`nan_check` found."""


class StepFamily:
    """A graph family whose graphs SGLang holds: ``run`` is a whole decode step of the worker.

    Satisfies :class:`cuda_graphs.Family`.
    """

    def __init__(self, name: str, sizes: CaptureSizes, step: Step) -> None:
        self.name = name
        self.sizes = sizes
        self._step = step

    def run(self, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        return self._step(self.sizes.pad(batch_size), *args, **kwargs)


class SpecV2Worker(EAGLEWorkerV2):
    """EAGLEWorkerV2 whose decode steps can each be plain.

    Raises:
        CompatibilityError: this SGLang lacks something the worker relies on.
        ConfigError, UnsupportedError: what was asked for cannot be served.
    """

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
        compat.require()
        self.config = SpecV2Config.from_server_args(server_args)
        self.policy = build(self.config)
        self.draft_sync: DraftSync | None = None
        self.selector: Selector | None = None
        self.counters = StepCounters()
        self._capture_failures = CaptureFailures(self.config.capture_failure)
        # Not asked for later: an update of weights changes the path of the target.
        draft, target = server_args.speculative_draft_model_path, server_args.model_path
        self._draft_checkpoint = draft if draft != target else None
        self._mode = Mode.PLAIN if self.policy.name == "never" else Mode.SPECULATIVE
        self._batch_size = 0
        self._last_switch_log = float("-inf")
        self._warned_of_eager = False
        self._draft_reads_last = True
        super().__init__(server_args, *args, **kwargs)

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        target, draft = self.target_worker.model_runner, self.draft_worker
        speculative_sizes = CaptureSizes(
            target.decode_cuda_graph_runner.capture_bs if target.decode_cuda_graph_runner else ()
        )
        for warning in validate_against_server(
            self.config,
            max_running_requests=target.max_running_requests,
            capture_sizes=tuple(speculative_sizes),
        ):
            logger.warning(warning)
        if self.policy.name == "always":
            return
        with (
            draft.draft_tp_context(draft.draft_runner.tp_group),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
        ):
            self.draft_sync, choice = build_draft_sync(
                self, self.config.draft_sync, self._capture_failures
            )
        logger.info("Draft sync while not speculating: %s (%s).", choice.mode, choice.reason)
        self._draft_prefill = draft._draft_extend_for_prefill
        draft._draft_extend_for_prefill = self._prefill_draft
        self.plain_runtime = PlainDecodeRuntime(target, self.draft_sync, self._capture_failures)
        self._additional_graph_memory_usage["plain_decode"] = self.plain_runtime.memory_gb
        self._additional_graph_time_usage["plain_decode"] = self.plain_runtime.capture_s
        self._plain = PlainStep(
            self.target_worker,
            self.plain_runtime,
            self.draft_sync,
            num_draft_tokens=self.speculative_num_draft_tokens,
            max_rows=self.req_to_token_pool.req_to_token.shape[0],
        )
        self.selector = self._build_selector(speculative_sizes)
        logger.info("sglang-specv2 serves with policy %s: %s.", self.policy.name, self.config)

    def _build_selector(self, speculative_sizes: CaptureSizes) -> Selector:
        """Both families by mode. SGLang's speculative runners fall back to eager by themselves."""
        selector = Selector()
        for mode, sizes, step in (
            (Mode.SPECULATIVE, speculative_sizes, self._speculative_step),
            (Mode.PLAIN, self.plain_runtime.sizes, self._plain_step),
        ):
            eager = StepFamily(f"{mode}_eager", CaptureSizes(()), step)
            if self._expects_graphs and not sizes:
                selector.register(mode, eager)
            else:
                selector.register(mode, StepFamily(mode.value, sizes, step), eager=eager)
        return selector

    @property
    def _expects_graphs(self) -> bool:
        """Whether a step without a graph is worth a word: a CPU has none to begin with."""
        return self.target_worker.model_runner.device != "cpu" or bool(
            self._capture_failures.reasons
        )

    @property
    def war_fastpath_runner(self) -> Any:
        if self._draft_reads_last:
            return super().war_fastpath_runner
        return self.target_worker.model_runner

    @property
    def spec_v2_attn_backends(self) -> tuple[Any, ...]:
        backends = super().spec_v2_attn_backends
        return backends if self.selector is None else (*backends, self.plain_runtime.attn_backend)

    def forward_batch_generation(
        self,
        batch: Any,
        on_publish: Callable[..., None] | None = None,
        grammar_barrier: Callable[[], None] | None = None,
    ) -> Any:
        """One step of the scheduler: prefill, or a decode step in the mode the policy names."""
        if self.selector is None or self.draft_sync is None:
            return super().forward_batch_generation(batch, on_publish, grammar_barrier)
        if (
            not batch.forward_mode.is_decode()
            or batch.is_extend_in_batch
            or batch.spec_info is None
        ):
            self.draft_sync.before_step(None)
            self._draft_reads_last = True
            return super().forward_batch_generation(batch, on_publish, grammar_barrier)
        rows = batch.req_pool_indices.shape[0]
        decision = self.policy.decide(rows)
        selection = self.selector.select(decision.mode, rows)
        self._batch_size = rows
        if decision.mode is not self._mode:
            self._mode = decision.mode
            self.counters.switches[decision.mode.value] += 1
            self._log_switch(decision.reason)
        self.counters.steps[selection.key.family] += 1
        expected_graph = self._expects_graphs or bool(self.plain_runtime.sizes)
        if selection.eager and expected_graph and not self._warned_of_eager:
            self._warned_of_eager = True
            logger.warning(
                "A decode step runs without a CUDA graph: %s. Told once; counted in the state.",
                selection.reason,
            )
        return selection.run(batch, on_publish, grammar_barrier)

    def specv2_status(self) -> dict[str, Any]:
        """What the worker is doing and has done, with plain types."""
        return {
            "policy": self.policy.name,
            "mode": self._mode.value,
            "batch_size": self._batch_size,
            "draft_sync": None if self.draft_sync is None else self.draft_sync.mode,
            "capture_failures": list(self._capture_failures.reasons),
            **self.counters.as_dict(),
        }

    def specv2_observe(self, result: Any) -> None:
        """Receives the result of each speculative step once it is on the CPU."""
        self.counters.verified(result.num_correct_drafts_per_req_cpu)
        checked = getattr(result, NAN_CHECK, None)
        if checked is not None:
            self._count_nan_drafts(int(checked.isnan().sum()))

    def _count_nan_drafts(self, rows: int) -> None:
        if rows and not self.counters.nan_drafts:
            logger.warning(
                "The draft computes NaN. Tokens stay right, since every draft is verified, but "
                "such drafts are noise: check the draft's weights and dtype. Told once; "
                "counted as nan_drafts in the state."
            )
        self.counters.nan_drafts += rows

    def update_weights_from_disk(self, recv_req: Any) -> tuple[bool, str]:
        """The draft's part of an update. A draft that is another checkpoint keeps its weights.

        SGLang would load the target's checkpoint into it, and end the scheduler where the names
        differ. Tokens are the new target's in any case; how often it accepts the old draft's
        guesses is another matter, and the answer says so.
        """
        if self._draft_checkpoint is None:
            return super().update_weights_from_disk(recv_req)
        return True, (
            "Succeeded to update the target's weights; the draft keeps those of "
            f"{self._draft_checkpoint}."
        )

    def _log_switch(self, reason: str) -> None:
        now = time.monotonic()
        if now - self._last_switch_log >= 1.0:
            self._last_switch_log = now
            logger.info("Decode is %s now: %s.", self._mode.value, reason)

    def _prefill_draft(
        self, batch: Any, hidden_states: Any, next_token_ids: Any, mm_input_embeds: Any = None
    ) -> Any:
        """The draft's part of a prefill. While decode is plain, its proposals would go unused."""
        if self._mode is Mode.PLAIN and mm_input_embeds is None and batch.forward_mode.is_extend():
            draft_sync = cast(DraftSync, self.draft_sync)
            draft_input = draft_sync.prefill(batch, hidden_states, next_token_ids)
            if draft_input is not None:
                return draft_input
        return self._draft_prefill(batch, hidden_states, next_token_ids, mm_input_embeds)

    def _speculative_step(
        self, padded_rows: int | None, batch: Any, on_publish: Any, grammar_barrier: Any
    ) -> Any:
        draft, draft_sync = self.draft_worker, cast(DraftSync, self.draft_sync)
        draft_sync.before_step(None)
        with (
            draft.draft_tp_context(draft.draft_runner.tp_group),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
        ):
            self.counters.resumes += draft_sync.before_speculative_step(batch)
        # A draft forward of the resume may have announced that the draft is done reading the
        # batch's buffers; the speculative step's own draft extend is what counts.
        draft.draft_runner.war_fastpath_read_done_event = None
        self._draft_reads_last = True
        checked = nan_check(batch.spec_info)
        result = super().forward_batch_generation(batch, on_publish, grammar_barrier)
        setattr(result, NAN_CHECK, checked)
        return result

    def _plain_step(
        self, padded_rows: int | None, batch: Any, on_publish: Any, grammar_barrier: Any
    ) -> PlainStepResult:
        result = self._plain.run(batch, on_publish, grammar_barrier, padded_rows=padded_rows)
        self._draft_reads_last = result.drives_draft_last
        self.counters.plain_tokens += self._batch_size
        return result
