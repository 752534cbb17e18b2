"""Speculate while the batch is small."""

from __future__ import annotations

from sglang_specv2.errors import ConfigError
from sglang_specv2.policy.base import Cause, Decision, Mode, require_at_least, require_live


class ThresholdPolicy:
    """Stops speculating above one batch size and resumes at or under another.

    Between the two the mode stays what it is. After a switch the mode is kept for at least
    ``min_dwell`` steps, the step of the switch included, whatever the batch does. The first step
    is no switch: it takes the mode that its batch size asks for (speculative between the two
    thresholds), and the first switch may follow at any step.

    Args:
        disable_above: N, in requests, at least 1; plain steps above it.
        enable_at: M, in requests, 0 to N; speculative again at or under it. At 0 it never is.
        min_dwell: steps from one switch to the next, at least; 0 and 1 do not constrain.

    Raises:
        ConfigError: a value is impossible.
    """

    name = "threshold"

    def __init__(self, disable_above: int, enable_at: int, min_dwell: int) -> None:
        self.disable_above = require_at_least("disable threshold", disable_above, 1)
        self.enable_at = require_at_least("enable threshold", enable_at, 0)
        self.min_dwell = require_at_least("minimum dwell", min_dwell, 0)
        if enable_at > disable_above:
            raise ConfigError(
                f"enable threshold: expected at most {disable_above}, the disable threshold, "
                f"got {enable_at}; lower it, or raise the disable threshold"
            )
        self._mode: Mode | None = None
        self._steps_since_switch: int | None = None

    def continue_from(self, earlier: ThresholdPolicy) -> None:
        """Take over mode and dwell from the policy that this one replaces."""
        self._mode, self._steps_since_switch = earlier._mode, earlier._steps_since_switch

    def decide(self, batch_size: int, context_tokens: int = 0) -> Decision:
        """See :class:`~sglang_specv2.policy.base.Policy`."""
        require_live(batch_size)
        wanted, reason = self._wanted(batch_size)
        switched = self._mode is not None and wanted is not self._mode
        if self._steps_since_switch is not None:
            self._steps_since_switch += 1
            if switched and self._steps_since_switch < self.min_dwell:
                wanted, switched = wanted.other, False
                reason += (
                    f"; held at {wanted}: {self._steps_since_switch} of {self.min_dwell} steps "
                    "(minimum dwell) since the last switch"
                )
        if switched:
            self._steps_since_switch = 0
        self._mode = wanted
        return Decision(wanted, switched, reason, cause=Cause.BATCH_SIZE)

    def _wanted(self, batch_size: int) -> tuple[Mode, str]:
        if batch_size > self.disable_above:
            return Mode.PLAIN, f"batch size {batch_size} > {self.disable_above} (disable threshold)"
        if batch_size <= self.enable_at:
            return (
                Mode.SPECULATIVE,
                f"batch size {batch_size} <= {self.enable_at} (enable threshold)",
            )
        reason = (
            f"batch size {batch_size} is above {self.enable_at} (enable threshold) and not above "
            f"{self.disable_above} (disable threshold)"
        )
        if self._mode is None:
            return Mode.SPECULATIVE, f"{reason}: {Mode.SPECULATIVE} at first"
        return self._mode, f"{reason}: {self._mode} as before"
