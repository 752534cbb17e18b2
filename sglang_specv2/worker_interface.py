"""What the rest of a server asks of the worker: its state, outcomes of verifies, other settings.

The functions that go around SGLang's own (:mod:`~sglang_specv2.accounting`,
:mod:`~sglang_specv2.introspection`, :mod:`~sglang_specv2.live_control`) find these by name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.config import SpecV2Config
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.errors import ConfigError
from sglang_specv2.metrics import DynamicMetrics
from sglang_specv2.opt_out import opted_out
from sglang_specv2.policy import AutoPolicy
from sglang_specv2.policy.control import PolicyControl
from sglang_specv2.step_log import StepLog

logger = logging.getLogger(__name__)

NAN_CHECK = "specv2_nan_check"
"""The attribute of a speculative step's result that holds what :class:`NanCheck` found."""


class WorkerInterface:
    """A part of SpecV2Worker, which sets what is named here."""

    config: SpecV2Config
    control: PolicyControl | None
    draft_sync: DraftSync | None
    step_log: StepLog
    topk: int
    speculative_num_steps: int
    _capture_failures: CaptureFailures
    _calibration_failure: str | None

    def specv2_status(self) -> dict[str, Any]:
        """What the worker is doing and has done, with plain types."""
        status = {
            "policy": self.config.dynamic,
            "mode": self.step_log.mode.value,
            "draft_steps": self.step_log.draft_steps,
            "batch_size": self.step_log.batch_size,
            "draft_sync": None if self.draft_sync is None else self.draft_sync.mode,
            "capture_failures": list(self._capture_failures.reasons),
            "calibration_failure": self._calibration_failure,
            **self.step_log.counters.as_dict(),
        }
        if self.control is not None:
            policy = self.control.policy
            status |= {"policy": policy.name, "settings": self.control.as_dict()}
            if isinstance(policy, AutoPolicy):
                status["auto"] = policy.as_dict()
                if self.control.cost is not None:
                    status["auto"]["step_time_factors"] = self.control.cost.factors()
        return status

    def specv2_observe(self, requests: Sequence[Any], result: Any) -> None:
        """Receives the outcome of each speculative step once it is on the CPU.

        Args:
            requests: of the step's batch, None in place of those that had ended before it.
            result: SGLang's GenerationBatchResult of the step.
        """
        rows = result.num_correct_drafts_per_req_cpu
        verified = [
            (request, drafts)
            for request, drafts in zip(requests, rows, strict=True)
            if request is not None
        ]
        accepted = [drafts for _, drafts in verified]
        counting = [drafts for request, drafts in verified if not opted_out(request)]
        steps = self.speculative_num_steps
        if self.topk == 1:  # It may be another tier's by now.
            steps = result.speculative_num_draft_tokens - 1
        self.step_log.verified(rows, accepted, counting, steps)
        checked = getattr(result, NAN_CHECK, None)
        if checked is not None:
            self.step_log.checked_for_nan(int(checked.isnan().sum()))

    def specv2_check(self, values: Mapping[str, Any]) -> None:
        """Whether :meth:`specv2_change` would put these settings in force.

        Raises:
            ConfigError: it would not.
        """
        self._changeable().planned(values)

    def specv2_change(self, values: Mapping[str, Any]) -> None:
        """Put other settings in force from the next step on.

        Raises:
            ConfigError: they cannot be; nothing has changed then.
        """
        control = self._changeable()
        control.change(values)
        self.step_log.settings_changed(control.as_dict())
        logger.info("Policy is %s now: %s.", control.policy.name, control.as_dict())

    def _changeable(self) -> PolicyControl:
        if self.control is None:
            raise ConfigError(
                "this server was started with --speculative-dynamic always and has no plain "
                "graphs: expected a start with auto, threshold or never; restart it so"
            )
        return self.control

    def specv2_use_metrics(self, labels: Mapping[str, Any]) -> None:
        """Keep Prometheus metrics with SGLang's labels from now on."""
        settings = {} if self.control is None else self.control.as_dict()
        self.step_log.use_metrics(DynamicMetrics(labels), settings)
