"""How long steps take, from when they begin."""

from __future__ import annotations

import time
from collections import deque
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
        self._before: deque[tuple[int, int, int]] = deque(maxlen=3)

    def began(self, steps: int, batch_size: int, context_tokens: int) -> TimedStep | None:
        """The step before this one, where its time says something."""
        now_s, timed = self._now(), None
        kinds = {(steps, bucket_of(batch_size)) for steps, batch_size, _ in self._before}
        if len(self._before) == self._before.maxlen and len(kinds) == 1:
            timed = TimedStep(*self._before[-1], now_s - self._last_s)
        self._before.append((steps, batch_size, context_tokens))
        self._last_s = now_s
        return timed

    def interrupted(self) -> None:
        """Something else than a decode step runs."""
        self._before.clear()
