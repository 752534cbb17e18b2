"""The worker SGLang runs in place of EAGLEWorkerV2.

It is EAGLEWorkerV2 while speculating. Before every decode step the policy names a mode from the
live requests and what was accepted lately, the selector names the graph family for it, and that
family runs the step.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from cuda_graphs import CaptureSizes, Selection, Selector
from sglang_specv2 import compat
from sglang_specv2.calibration.at_start import step_times
from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.config import (
    SpecV2Config,
    auto_asked_for,
    given_options,
    settings,
    validate_against_server,
)
from sglang_specv2.counters import StepCounters
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.draft_sync.build import build_draft_sync
from sglang_specv2.draft_sync.proposals import NanCheck
from sglang_specv2.errors import CaptureError, ConfigError
from sglang_specv2.opt_out import opted_out
from sglang_specv2.plain_decode import PlainDecodeRuntime
from sglang_specv2.plain_step import PlainStep, PlainStepResult
from sglang_specv2.policy import (
    Acceptance,
    AutoPolicy,
    Cause,
    CostModel,
    Decision,
    LiveCost,
    Mode,
)
from sglang_specv2.policy.control import PolicyControl
from sglang_specv2.policy.live_cost import Learned
from sglang_specv2.step_family import StepFamily
from sglang_specv2.step_learning import StepLearning
from sglang_specv2.step_log import StepLog
from sglang_specv2.step_tiers import StepTiers
from sglang_specv2.worker_interface import NAN_CHECK, WorkerInterface

logger = logging.getLogger(__name__)


class SpecV2Worker(WorkerInterface, EAGLEWorkerV2):
    """EAGLEWorkerV2 whose decode steps can each be plain.

    Raises:
        CompatibilityError: this SGLang lacks something the worker relies on.
        ConfigError, UnsupportedError: what was asked for cannot be served.
    """

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
        compat.require()
        self.config = SpecV2Config.from_server_args(server_args)
        self.control: PolicyControl | None = None
        self.draft_sync: DraftSync | None = None
        self.selector: Selector | None = None
        self._asked_for = bool(settings(given_options(server_args)))
        self._auto_asked_for = auto_asked_for(server_args)
        self._calibration_failure: str | None = None
        self._capture_failures = CaptureFailures(self.config.capture_failure)
        # Not asked for later: an update of weights changes the path of the target.
        draft, target = server_args.speculative_draft_model_path, server_args.model_path
        self._draft_checkpoint = draft if draft != target else None
        self._draft_reads_last = True
        self._learning = StepLearning(self._agree)
        self._nan_check = NanCheck()
        super().__init__(server_args, *args, **kwargs)
        first = Mode.PLAIN if self.config.dynamic == "never" else Mode.SPECULATIVE
        self.step_log = StepLog(
            first, Acceptance(self.speculative_num_steps), self.speculative_num_steps
        )

    def init_cuda_graphs(self) -> None:
        super().init_cuda_graphs()
        target = self.target_worker.model_runner
        self._speculative_sizes = CaptureSizes(
            target.decode_cuda_graph_runner.capture_bs if target.decode_cuda_graph_runner else ()
        )
        for warning in self._warnings(self.config):
            logger.warning(warning)
        if self.config.dynamic == "always" and self.config.test_schedule is None:
            return
        try:
            self._capture_plain()
        except CaptureError as error:
            if self._asked_for:
                raise
            # Who asked for nothing gets the server that they would have without this package.
            self.draft_sync, self.config = None, replace(self.config, dynamic="always")
            self._capture_failures.reasons.append(str(error))
            logger.exception("Without plain graphs this server always speculates.")
            return
        self.selector = self._build_selector(self._speculative_sizes)
        asked = self.config.step_choices or (0, self.speculative_num_steps)
        choices = tuple(steps for steps in asked if steps in (0, *self.tiers.steps))
        cost = self._step_times(choices) if self.config.dynamic == "auto" else None
        self.control = PolicyControl(
            self.config, self.step_log.acceptance, choices, cost, self._refuse
        )
        logger.info(
            "sglang-specv2 serves with policy %s: %s.", self.control.policy.name, self.config
        )

    def _capture_plain(self) -> None:
        """Everything that plain steps need beside the speculative graphs."""
        target, draft = self.target_worker.model_runner, self.draft_worker
        with self._draft_context():
            self.tiers = StepTiers(self, self.config.step_choices or (), self._capture_failures)
            self.draft_sync, choice = build_draft_sync(
                self, self.config.draft_sync, self._capture_failures
            )
        logger.info("Draft sync while not speculating: %s (%s).", choice.mode, choice.reason)
        self.plain_runtime = PlainDecodeRuntime(target, self._capture_failures)
        self._additional_graph_memory_usage["plain_decode"] = self.plain_runtime.memory_gb
        self._additional_graph_time_usage["plain_decode"] = self.plain_runtime.capture_s
        self._plain = PlainStep(
            self.target_worker,
            self.plain_runtime,
            self.draft_sync,
            num_draft_tokens=self.speculative_num_draft_tokens,
            max_rows=self.req_to_token_pool.req_to_token.shape[0],
        )
        self._draft_prefill = draft._draft_extend_for_prefill
        draft._draft_extend_for_prefill = self._prefill_draft

    def _warnings(self, config: SpecV2Config) -> list[str]:
        return validate_against_server(
            config,
            max_running_requests=self.target_worker.model_runner.max_running_requests,
            capture_sizes=tuple(self._speculative_sizes),
        )

    def _refuse(self, config: SpecV2Config) -> None:
        """What is a warning at start would be an order without effect while serving."""
        for warning in self._warnings(config):
            raise ConfigError(warning)

    def _step_times(self, choices: tuple[int, ...]) -> CostModel | None:
        """For policy ``auto``. Who did not ask for it gets a server all the same: one that always
        speculates, as SGLang's own."""
        try:
            return step_times(self, self.config, self._timed_step, choices)
        except Exception as error:
            if self._auto_asked_for:
                raise
            self.config = replace(self.config, dynamic="always")
            self._calibration_failure = f"{type(error).__name__}: {error}"
            logger.exception(
                "Both modes could not be timed, so this server always speculates; give "
                "--speculative-disable-batch-threshold, or a calibration."
            )
            return None
        finally:
            cast(DraftSync, self.draft_sync).reset()
            self.step_log.counters = StepCounters()
            # Nobody has to wait for what these steps read.
            for runner in (self.target_worker.model_runner, self.draft_worker.draft_runner):
                runner.war_fastpath_read_done_event = None

    def _timed_step(self, batch: Any, steps: int) -> None:
        """A step as calibration asks for it: the policy has no say, and nothing is counted."""
        rows = batch.req_pool_indices.shape[0]
        if steps:
            self._speculative_step(
                self._speculative_sizes.pad(rows), batch, None, None, steps=steps
            )
        else:
            self._plain_step(self.plain_runtime.sizes.pad(rows), batch, None, None)

    @contextmanager
    def _draft_context(self) -> Iterator[None]:
        """What SGLang puts around everything the draft does."""
        draft = self.draft_worker
        with (
            draft.draft_tp_context(draft.draft_runner.tp_group),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
        ):
            yield

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
        if self.selector is None:
            return backends
        return (*backends, *self.tiers.attn_backends, self.plain_runtime.attn_backend)

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
            self.step_log.interrupted()
            self._learning.interrupted()
            self._draft_reads_last = True
            if not batch.forward_mode.is_extend():
                self.draft_sync.catch_up()
            elif on_publish is not None:
                # The lengths are known. SGLang's worker tells them when the target's forward is
                # over, and where an attention backend wants them on the host (flashinfer) the
                # scheduler waits for that before it launches the next step.
                on_publish(batch.seq_lens)
                on_publish = None
            return super().forward_batch_generation(batch, on_publish, grammar_barrier)
        began_s, rows = time.perf_counter(), batch.req_pool_indices.shape[0]
        decision = self._decide(batch, rows)
        selection = self.selector.select(decision.mode, rows)
        if decision.mode is Mode.PLAIN:
            result = selection.run(batch, on_publish, grammar_barrier)
        else:
            result = selection.run(batch, on_publish, grammar_barrier, steps=decision.steps)
        self._launched(decision, selection, began_s)
        return result

    def _launched(self, decision: Decision, selection: Selection, began_s: float) -> None:
        """Notes of a step wait for its launches: so do small speculative steps, on the host."""
        self.step_log.launched(decision, selection, began_s)
        if selection.eager and (self._expects_graphs or self.plain_runtime.sizes):
            self.step_log.eager(selection.reason)
        policy = cast(PolicyControl, self.control).policy
        if isinstance(policy, AutoPolicy):
            self.step_log.estimated(policy.speed_up, policy.probes, policy.probe_cost_s)
        self._learning.launched()

    def _decide(self, batch: Any, rows: int) -> Decision:
        if all(opted_out(request) for request in batch.reqs):
            self._learning.interrupted()
            return Decision(
                Mode.PLAIN, False, "every request opted out of speculation", 0, Cause.OPT_OUT
            )
        control = cast(PolicyControl, self.control)
        policy = control.policy
        if not isinstance(policy, AutoPolicy):
            self._learning.interrupted()
            return policy.decide(rows)
        context = sum(request.seqlen for request in batch.reqs)
        decision = policy.decide(rows, context)
        self._learning.began(cast(LiveCost, control.cost), cast(int, decision.steps), rows, context)
        return decision

    def _agree(self, learned: Learned) -> Learned:
        """Rank 0's corrections of step times, on every rank."""
        if self.ps.tp_size == 1:
            return learned
        group = self.target_worker.model_runner.tp_group
        return cast(Learned, group.broadcast_object(learned, src=0))

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

    def _prefill_draft(
        self, batch: Any, hidden_states: Any, next_token_ids: Any, mm_input_embeds: Any = None
    ) -> Any:
        """The draft's part of a prefill. While decode is plain, its proposals would go unused."""
        draft_sync = cast(DraftSync, self.draft_sync)
        if (
            self.step_log.mode is Mode.PLAIN
            and mm_input_embeds is None
            and batch.forward_mode.is_extend()
        ):
            draft_input = draft_sync.prefill(batch, hidden_states, next_token_ids)
            if draft_input is not None:
                return draft_input
        draft_sync.catch_up()
        return self._draft_prefill(batch, hidden_states, next_token_ids, mm_input_embeds)

    def _speculative_step(
        self,
        padded_rows: int | None,
        batch: Any,
        on_publish: Any,
        grammar_barrier: Any,
        steps: int | None = None,
    ) -> Any:
        draft_runner, draft_sync = self.draft_worker.draft_runner, cast(DraftSync, self.draft_sync)
        draft_sync.catch_up()
        if draft_sync.must_resume:
            with self._draft_context():
                draft_sync.resume(batch)
            self.step_log.resumed()
        # A draft forward of the resume may have announced that the draft is done reading the
        # batch's buffers; the speculative step's own draft extend is what counts.
        draft_runner.war_fastpath_read_done_event = None
        self._draft_reads_last = True
        self.tiers.use(steps)
        proposal = batch.spec_info.hidden_states, batch.spec_info.topk_p
        result = super().forward_batch_generation(batch, on_publish, grammar_barrier)
        setattr(result, NAN_CHECK, self._nan_check.look(*proposal))
        return result

    def _plain_step(
        self, padded_rows: int | None, batch: Any, on_publish: Any, grammar_barrier: Any
    ) -> PlainStepResult:
        result = self._plain.run(batch, on_publish, grammar_barrier, padded_rows=padded_rows)
        self._draft_reads_last = result.drives_draft_last
        return result
