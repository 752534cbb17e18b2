"""Speculate where it is faster, by measured step times and by what was accepted lately."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil
from typing import Any, NamedTuple

from sglang_specv2.errors import ConfigError
from sglang_specv2.policy.acceptance import Acceptance
from sglang_specv2.policy.base import Cause, Decision, Mode, require_at_least, require_live
from sglang_specv2.policy.cost import PLAIN, StepTimes

PROBE_SHARE = 0.005
"""Share of the time that probes may cost, as estimated."""
PLAIN_PROBE_SHARE = 0.001
"""The same of probes that run plain steps: only their time is to be learned, not what is
accepted."""

_PROBE_VERIFIES = 128  # Enough to tell accept lengths a tenth apart.
_PROBE_STEPS = (5, 16)  # The third is the first whose time says something.
_PLAIN_PROBE_STEPS = 10
_PROBE_INTERVAL_STEPS = (64, 20_000)
_LOOK_EVERY_STEPS = 31
"""Whether a probe is due takes the host some time to know. Odd, so that of two batch sizes that
take turns each is looked at."""
_MOST_RARE = 256


class _Estimates(NamedTuple):
    """Of one step: the choice in force, and by draft steps what a step would take and give."""

    current: int
    times: dict[int, float]
    lengths: dict[int, float]
    rates: dict[int, float]  # Tokens/s of one request.

    def may_win(self, steps: int) -> bool:
        """Whether more draft steps would win if all drafts were accepted."""
        return steps > self.current and (steps + 1) / self.times[steps] > self.rates[self.current]

    def lost_s(self, steps: int) -> float:
        """What one step of a probe costs."""
        return max(0.0, self.times[steps] - self.lengths[steps] / self.rates[self.current])


class AutoPolicy:
    """Takes the number of draft steps, 0 included, that gives most tokens a second.

    A verify after ``k`` draft steps gives ``accept_length(k)`` tokens for each request in
    ``step_s(k)``; a plain step gives one in ``step_s(0)``. Speculation begins where it is estimated
    to be faster by more than the margin, and ends where it is slower; between two numbers of draft
    steps the margin decides as well. A switch comes no sooner than ``min_dwell`` steps after the
    last, unless waiting for it would have cost as much as a plain step, or as resuming where that
    is more: a batch may grow in an instant from where speculation pays to where it takes several
    times as long.

    What more draft steps would bring goes unseen, off above all, so now and then a few steps run
    them: a probe. The interval follows from what a probe is estimated to cost
    (:data:`PROBE_SHARE`). Where even drafts that are all accepted would lose, there is none. While
    on, a few plain steps show whether they still take as long as was measured
    (:data:`PLAIN_PROBE_SHARE`), ever more rarely while no switch follows.

    Args:
        cost: step times.
        acceptance: accept lengths; whoever runs the steps enters them.
        choices: numbers of draft steps to choose from, 0 among them.
        margin: 0 to 1.
        min_dwell: steps from one switch to the next.

    Raises:
        ConfigError: a value is impossible, or a choice was not measured.
    """

    name = "auto"

    def __init__(
        self,
        cost: StepTimes,
        acceptance: Acceptance,
        choices: Iterable[int],
        margin: float,
        min_dwell: int,
    ) -> None:
        self.cost = cost
        self.acceptance = acceptance
        self.choices = tuple(sorted(set(choices)))
        self.margin = require_margin(margin)
        self.min_dwell = require_at_least("minimum dwell", min_dwell, 0)
        unmeasured = set(self.choices) - set(cost.steps)
        if PLAIN not in self.choices or len(self.choices) < 2 or unmeasured:
            raise ConfigError(
                f"draft steps: expected 0 and at least one more of {cost.steps}, which were "
                f"measured, got {self.choices}; calibrate with those, or choose others"
            )
        self.probes = 0
        self.probe_cost_s = 0.0
        """What probes cost, as estimated when they ran: time beyond what the choice in force would
        have taken for as many tokens."""
        self.speed_up: float | None = None
        """Of the best speculative choice over a plain step, at the last decision."""
        self._steps: int | None = None  # The choice in force; a probe leaves it alone.
        self._last: int | None = None  # What the step before ran with.
        self._probed = False
        self._since_switch: int | None = None
        self._waited_s = 0.0  # Lost since then by not switching again.
        self._probe: tuple[int, int] | None = None  # Its draft steps, and how many steps are left.
        self._since_probe = 0
        self._since_plain_probe = 0
        self._rarer = 1  # Plain probes come so many times more rarely than they could.
        self._until_look = _LOOK_EVERY_STEPS

    def continue_from(self, earlier: AutoPolicy) -> None:
        """Go on where a policy with the same choices ended, with this one's margin and dwell: its
        choice in force, and what its probes cost."""
        own = self.margin, self.min_dwell
        vars(self).update(vars(earlier))
        self.margin, self.min_dwell = own

    def decide(self, batch_size: int, context_tokens: int = 0) -> Decision:
        """See :class:`~sglang_specv2.policy.base.Policy`."""
        require_live(batch_size)
        times = {k: self.cost.step_s(k, batch_size, context_tokens) for k in self.choices}
        lengths = {k: self.acceptance.accept_length(batch_size, k) for k in self.choices}
        rates = {k: lengths[k] / times[k] for k in self.choices}  # Tokens/s of one request.
        best_speculative = max(self.choices[1:], key=rates.__getitem__)
        self.speed_up = rates[best_speculative] / rates[PLAIN]
        if self._since_switch is not None:
            self._since_switch += 1
        reason = self._reason(best_speculative, batch_size, times, lengths)
        wanted = self._wanted(rates, best_speculative)
        cause = Cause.PROBE if self._probed else Cause.ESTIMATE
        if self._steps is not None and wanted != self._steps:
            since = self._since_switch
            self._waited_s += times[self._steps] - lengths[self._steps] / rates[wanted]
            patience_s = max(times[PLAIN], self.cost.resume_s)
            if since is not None and since < self.min_dwell and self._waited_s < patience_s:
                wanted = self._steps
                reason += f"; held: {since} of {self.min_dwell} steps since the last switch"
            else:
                cause = Cause.ESTIMATE
                self._since_switch = self._since_probe = self._since_plain_probe = 0
                self._probe, self._rarer = None, 1
                self._waited_s = 0.0
        self._steps = wanted
        probe = self._probe_steps(batch_size, _Estimates(wanted, times, lengths, rates))
        self._probed = probe is not None
        if probe is not None:
            return self._decision(probe, f"probe; {reason}", Cause.PROBE)
        return self._decision(wanted, reason, cause)

    def as_dict(self) -> dict[str, Any]:
        """What it thinks, with plain types."""
        return {
            "step_choices": list(self.choices),
            "estimated_speed_up": self.speed_up,
            "probes": self.probes,
            "probe_cost_s": self.probe_cost_s,
        }

    def _decision(self, steps: int, reason: str, cause: Cause) -> Decision:
        switched = self._last is not None and steps != self._last
        self._last = steps
        mode = Mode.PLAIN if steps == PLAIN else Mode.SPECULATIVE
        return Decision(mode, switched, reason, steps, cause)

    def _wanted(self, rates: dict[int, float], best_speculative: int) -> int:
        current = self._steps
        if current is None:
            return max(rates, key=rates.__getitem__)
        if current == PLAIN:
            gains = rates[best_speculative] > rates[PLAIN] * (1 + self.margin)
            return best_speculative if gains else PLAIN
        if rates[PLAIN] > rates[best_speculative]:
            return PLAIN
        gains = rates[best_speculative] > rates[current] * (1 + self.margin)
        return best_speculative if gains else current

    def _probe_steps(self, batch_size: int, estimates: _Estimates) -> int | None:
        """Draft steps of a probe that this step belongs to, if it does."""
        self._since_probe += 1
        self._since_plain_probe += 1
        self._until_look -= 1
        if self._probe is None and self._until_look <= 0:
            self._until_look = _LOOK_EVERY_STEPS
            self._probe = self._due(batch_size, estimates)
        if self._probe is None:
            return None
        steps, left = self._probe
        if steps != PLAIN and not estimates.may_win(steps):
            self._probe = None  # The batch has grown.
            return None
        self._probe = (steps, left - 1) if left > 1 else None
        self.probe_cost_s += estimates.lost_s(steps)
        return steps

    def _due(self, batch_size: int, estimates: _Estimates) -> tuple[int, int] | None:
        """Draft steps of the probe that is due, and how many steps it takes."""
        current = estimates.current
        more = [k for k in self.choices if estimates.may_win(k)]
        if more:
            number = _clamp(ceil(_PROBE_VERIFIES / batch_size), *_PROBE_STEPS)
            if self._begins(more[-1], number, PROBE_SHARE, self._since_probe, estimates):
                self._since_probe = 0
                return more[-1], number
        if current != PLAIN:
            share, since = PLAIN_PROBE_SHARE / self._rarer, self._since_plain_probe
            if self._begins(PLAIN, _PLAIN_PROBE_STEPS, share, since, estimates):
                self._since_plain_probe, self._rarer = 0, min(2 * self._rarer, _MOST_RARE)
                return PLAIN, _PLAIN_PROBE_STEPS
        return None

    def _begins(
        self, steps: int, number: int, share: float, since: int, estimates: _Estimates
    ) -> bool:
        """Whether another such probe begins: so many steps after the last one it costs no more
        than its share. If so it is counted."""
        current = estimates.current
        entry_s = self.cost.resume_s if PLAIN in (current, steps) else 0.0
        cost_s = number * estimates.lost_s(steps) + entry_s
        affordable = ceil(cost_s / (share * estimates.times[current]))
        if since < _clamp(affordable, *_PROBE_INTERVAL_STEPS):
            return False
        self.probes += 1
        self.probe_cost_s += entry_s
        return True

    def _reason(
        self, steps: int, batch_size: int, times: dict[int, float], lengths: dict[int, float]
    ) -> str:
        speculative_ms, plain_ms = 1e3 * times[steps], 1e3 * times[PLAIN]
        return (
            f"batch size {batch_size}: {lengths[steps]:.2f} tokens in {speculative_ms:.2f} ms with "
            f"{steps} draft steps, one in {plain_ms:.2f} ms without: speed-up {self.speed_up:.2f}"
        )


def require_margin(value: Any) -> float:
    """Return ``value`` if it is a number from 0 to 1.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ConfigError(f"margin: expected a number from 0 to 1, got {value!r}; change it")
    return float(value)


def _clamp(value: int, least: int, most: int) -> int:
    return max(least, min(value, most))
