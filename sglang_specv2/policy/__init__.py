"""When to speculate: policies that decide a decode step from its batch size.

Imports neither torch nor sglang.
"""

from __future__ import annotations

from sglang_specv2.config import SpecV2Config
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy.acceptance import Acceptance
from sglang_specv2.policy.auto import AutoPolicy
from sglang_specv2.policy.base import Cause, Decision, Mode, Policy
from sglang_specv2.policy.cost import CostModel, Point, StepTimes
from sglang_specv2.policy.fixed import AlwaysPolicy, NeverPolicy
from sglang_specv2.policy.live_cost import LiveCost
from sglang_specv2.policy.schedule import SchedulePolicy
from sglang_specv2.policy.threshold import ThresholdPolicy

__all__ = [
    "Acceptance",
    "AlwaysPolicy",
    "AutoPolicy",
    "Cause",
    "CostModel",
    "Decision",
    "LiveCost",
    "Mode",
    "NeverPolicy",
    "Point",
    "Policy",
    "SchedulePolicy",
    "StepTimes",
    "ThresholdPolicy",
    "build",
]


def build(
    config: SpecV2Config,
    acceptance: Acceptance,
    choices: tuple[int, ...],
    cost: StepTimes | None,
) -> Policy:
    """Build the policy that ``config`` asks for; a test schedule replaces any other.

    Args:
        config: the settings.
        acceptance: accept lengths, for ``auto``.
        choices: numbers of draft steps that have graphs, for ``auto``.
        cost: step times, for ``auto``; None where nothing was measured.

    Raises:
        ConfigError: the policy's values are missing or impossible, or nothing was measured.
    """
    if config.test_schedule is not None:
        return SchedulePolicy(config.test_schedule)
    if config.dynamic == "always":
        return AlwaysPolicy()
    if config.dynamic == "never":
        return NeverPolicy()
    if config.dynamic == "auto":
        if cost is None:
            raise ConfigError(
                "dynamic auto: expected step times, got none: this server was started with another "
                "policy, or could not time its steps (calibration_failure in its state); start it "
                "with --speculative-dynamic auto or --speculative-calibration"
            )
        return AutoPolicy(cost, acceptance, choices, config.switch_margin, config.switch_min_dwell)
    assert config.disable_batch_threshold is not None, "checked by the configuration"
    assert config.enable_batch_threshold is not None, "follows from the other"
    return ThresholdPolicy(
        config.disable_batch_threshold, config.enable_batch_threshold, config.switch_min_dwell
    )
