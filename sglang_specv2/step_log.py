"""What the worker did: counts for ``/server_info``, metrics for Prometheus, a line per switch."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cuda_graphs import Selection
from sglang_specv2.counters import StepCounters
from sglang_specv2.metrics import DynamicMetrics
from sglang_specv2.policy import Acceptance, Decision, Mode

logger = logging.getLogger(__name__)

_LOG_INTERVAL_S = 1.0


class StepLog:
    """Told of every step, in order; knows the step before.

    Args:
        mode: what a first step of that mode is no switch from.
        acceptance: takes the outcomes of verifies, and notes plain steps.
        num_steps: draft steps of a verify where a decision names none.
    """

    def __init__(self, mode: Mode, acceptance: Acceptance, num_steps: int) -> None:
        self.counters = StepCounters()
        self.mode = mode
        self.batch_size = 0
        self.draft_steps = 0 if mode is Mode.PLAIN else num_steps
        self.acceptance = acceptance
        self._num_steps = num_steps
        self._metrics: DynamicMetrics | None = None
        self._began_s: float | None = None
        self._followed_s: dict[Mode, float] = {}
        self._last_line_s = float("-inf")
        self._told = mode  # In the log, by the last line about it.
        self._untold: Decision | None = None  # The last switch, while a line would be too soon.
        self._told_of_eager = False
        self._policy_counts = (0, 0.0)

    def use_metrics(self, metrics: DynamicMetrics, settings: Mapping[str, Any]) -> None:
        """Also keep these from now on; ``settings`` as in :meth:`settings_changed`."""
        self._metrics = metrics
        metrics.set("speculating", float(self.mode is Mode.SPECULATIVE))
        metrics.set("draft_steps", self.draft_steps)
        self.settings_changed(settings)

    def settings_changed(self, settings: Mapping[str, Any]) -> None:
        """Show the settings that are in force as gauges; NaN where one means nothing now."""
        if self._metrics is not None:
            for name in ("disable_batch_threshold", "enable_batch_threshold", "switch_margin"):
                self._metrics.set(name, settings.get(name, float("nan")))
            if settings.get("dynamic") != "auto":
                self._metrics.set("estimated_speed_up", float("nan"))

    def launched(self, decision: Decision, selection: Selection, began_s: float) -> None:
        """A decode step was launched that began at ``began_s``, by ``time.perf_counter``."""
        self._account_time(began_s)
        if decision.mode is not self.mode:
            self.counters.switches[decision.mode.value] += 1
            self._add("switches", 1, decision.mode.value, decision.cause.value)
            self._untold = decision
        if self._untold is not None:
            self._tell(self._untold)
        self.mode, self.batch_size = decision.mode, selection.batch_size
        self.draft_steps = self._steps_of(decision)
        self.counters.steps[selection.key.family] += 1
        self._add("steps", 1, *self._labels())
        if self._metrics is not None:
            self._metrics.set("speculating", float(self.mode is Mode.SPECULATIVE))
            self._metrics.set("draft_steps", self.draft_steps)
        if self.mode is Mode.PLAIN:
            self.acceptance.step_without_drafts()
            self.counters.plain_tokens += self.batch_size
            self._add("tokens", self.batch_size, *self._labels())

    def eager(self, reason: str) -> None:
        """The step runs without a graph although there are graphs."""
        self._add("eager_steps", 1, self.mode.value)
        if not self._told_of_eager:
            self._told_of_eager = True
            logger.warning(
                "A decode step runs without a CUDA graph: %s. Told once; counted in the state.",
                reason,
            )

    def resumed(self) -> None:
        """The step needed a draft forward first."""
        self.counters.resumes += 1
        self._add("resumes")

    def interrupted(self) -> None:
        """Something else than decode runs. Whether the server was idle before it is not known, so
        the last decode step counts as long as the last one of its mode that another followed."""
        self._account_time(time.perf_counter(), followed=False)
        self._began_s = None

    def verified(
        self,
        rows: Sequence[int],
        accepted: Sequence[int],
        counting: Sequence[int],
        steps: int,
    ) -> None:
        """The outcome of a speculative step is on the CPU.

        Args:
            rows: drafts accepted, of each row of that step's batch.
            accepted: the same without rows of requests that had ended before.
            counting: the same of the requests that enter the acceptance.
            steps: draft steps of that verify.
        """
        self.counters.verified(list(accepted))
        self.acceptance.observe(len(rows), counting, steps)
        if self._metrics is None:
            return
        labels = Mode.SPECULATIVE.value, steps
        self._add("tokens", len(rows) + sum(rows), *labels)
        self._add("verifies", len(accepted))
        self._add("drafted_tokens", steps * len(accepted))
        self._add("accepted_drafts", sum(accepted))
        length = self.acceptance.accept_length(len(rows), steps)
        self._metrics.set("accept_length", length)
        self._metrics.set("accept_rate", (length - 1) / steps)

    def checked_for_nan(self, rows: int) -> None:
        """So many requests of a verify had a draft that came out NaN."""
        if rows and not self.counters.nan_drafts:
            logger.warning(
                "The draft computes NaN. Tokens stay right, since every draft is verified, but "
                "such drafts are noise: check the draft's weights and dtype. Told once; "
                "counted as nan_drafts in the state."
            )
        self.counters.nan_drafts += rows
        if rows:
            self._add("nan_drafts", rows)

    def estimated(self, speed_up: float | None, probes: int, probe_cost_s: float) -> None:
        """What policy ``auto`` thinks; counts since its start."""
        if self._metrics is None or speed_up is None:
            return
        self._metrics.set("estimated_speed_up", speed_up)
        before = self._policy_counts
        if probes != before[0] or probe_cost_s != before[1]:
            self._add("probes", max(0, probes - before[0]))
            self._add("probe_cost_seconds", max(0.0, probe_cost_s - before[1]))
            self._policy_counts = probes, probe_cost_s

    def _account_time(self, now_s: float, *, followed: bool = True) -> None:
        """The time since the step before began is that step's."""
        if self._began_s is not None:
            step_s = now_s - self._began_s
            if followed:
                self._followed_s[self.mode] = step_s
            else:
                step_s = min(step_s, self._followed_s.get(self.mode, 0.0))
            self.counters.seconds[self.mode.value] += step_s
            self._add("seconds", step_s, *self._labels())
        self._began_s = now_s

    def _labels(self) -> tuple[str, int]:
        return self.mode.value, self.draft_steps

    def _steps_of(self, decision: Decision) -> int:
        if decision.mode is Mode.PLAIN:
            return 0
        return self._num_steps if decision.steps is None else decision.steps

    def _add(self, name: str, amount: float = 1, *labels: Any) -> None:
        if self._metrics is not None:
            self._metrics.add(name, amount, *labels)

    def _tell(self, switch: Decision) -> None:
        """A line about the last switch, as soon as the line before is old enough; none where it
        leads back to what that one said."""
        now_s = time.monotonic()
        if now_s - self._last_line_s < _LOG_INTERVAL_S:
            return
        self._untold = None
        if switch.mode is not self._told:
            self._told, self._last_line_s = switch.mode, now_s
            logger.info("Decode is %s now: %s.", switch.mode.value, switch.reason)
