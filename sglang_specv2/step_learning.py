"""Corrects the step times of policy ``auto`` by what steps take while serving."""

from __future__ import annotations

from collections.abc import Callable

from sglang_specv2.policy.live_cost import Learned, LiveCost
from sglang_specv2.step_clock import StepClock, TimedStep

EVERY_STEPS = 64
"""Decode steps after which corrections are put in force; with tensor parallelism its ranks wait for
each other then, for a few bytes on the CPU."""


class StepLearning:
    """Told of every decode step that ``auto`` decided.

    Args:
        agree: gives rank 0's corrections on every rank; called by all of them at the same step.
        clock: times the steps.
    """

    def __init__(self, agree: Callable[[Learned], Learned], clock: StepClock | None = None) -> None:
        self._agree = agree
        self._clock = StepClock() if clock is None else clock
        self._began: tuple[LiveCost, TimedStep | None] | None = None
        self._steps_left = EVERY_STEPS

    def began(self, cost: LiveCost, steps: int, batch_size: int, context_tokens: int) -> None:
        """A step begins; see :meth:`StepClock.began`."""
        self._began = cost, self._clock.began(steps, batch_size, context_tokens)

    def launched(self) -> None:
        """A step runs: if it is one that began, enter the one before, while the host has time."""
        if self._began is None:
            return
        cost, timed = self._began
        if timed is not None:
            cost.observe(*timed)
        self._steps_left -= 1
        if self._steps_left == 0:
            self._steps_left = EVERY_STEPS
            cost.put_in_force(self._agree(cost.learned()))

    def interrupted(self) -> None:
        """Something else runs."""
        self._began = None
        self._clock.interrupted()
