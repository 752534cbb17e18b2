"""How long steps take, from when they begin."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from sglang_specv2.policy.fading import bucket_of


class TimedStep(NamedTuple):
    """A step and the seconds that it took; see :meth:`LiveCost.observe`."""

    steps: int
    batch_size: int
    context_tokens: int
    taken_s: float


class StepClock:
    """Told of every decode step as it begins.

    The scheduler launches a step while the one before runs, so the time from one beginning to the
    next is that of the step before; without overlap it is that of the step itself. Only steps
    behind two of their kind are timed: for them both are the same, and no switch is among them.

    Args:
        now: seconds on any clock.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._last_s = 0.0
        self._before = 0, 0, 0
        self._kind: tuple[int, int] | None = None
        self._alike = 0  # Steps of that kind, one after the other.

    def began(self, steps: int, batch_size: int, context_tokens: int) -> TimedStep | None:
        """The step before this one, where its time says something."""
        now_s, timed = self._now(), None
        if self._alike > 2:
            timed = TimedStep(*self._before, now_s - self._last_s)
        kind = steps, bucket_of(batch_size)
        self._alike = self._alike + 1 if kind == self._kind else 1
        self._kind, self._before, self._last_s = kind, (steps, batch_size, context_tokens), now_s
        return timed

    def interrupted(self) -> None:
        """Something else than a decode step runs."""
        self._alike = 0
