"""Step times as they were measured at start, corrected by what steps take while serving.

A start is a bad moment to measure: other servers start too, caches are cold, clocks are low. Later
the clocks, the neighbours or the load of the CPU change. So every rank notes how long its steps
take. What rank 0 learned is put in force on all ranks at the same step, since ranks that knew
different times would decide differently.
"""

from __future__ import annotations

from collections.abc import Sequence

from sglang_specv2.policy.cost import CostModel
from sglang_specv2.policy.fading import STALE, FadingMean, bucket_of

_HALF_LIFE_STEPS = 128
_WEIGHT_OF_PRIOR = 4.0  # In steps.
_BOUNDS = (0.67, 1.5)  # Of one step: a pause of Python's says little about the next step.
_ALL_SIZES = 0

Learned = Sequence[tuple[int, int, float]]
"""Draft steps, bucket of batch sizes (0 for all), and the factor on their measured time."""


class LiveCost:
    """Has what a policy asks of a :class:`CostModel`.

    Buckets are powers of two of the batch size. Each leans on all of them together, and those on
    the measurement, until enough steps were seen. What was seen of one number of draft steps fades
    with the steps of another too, if slower: once a slow spell of the host has ended speculation,
    it must not keep it off for as long as no speculative step says better.

    Args:
        measured: at start, or read from a file.
    """

    def __init__(self, measured: CostModel) -> None:
        self.measured = measured
        self._seen: dict[tuple[int, int], FadingMean] = {}
        self._in_force: dict[tuple[int, int], float] = {}
        self._age = 0.0  # In half-lives.

    @property
    def steps(self) -> tuple[int, ...]:
        return self.measured.steps

    @property
    def resume_s(self) -> float:
        return self.measured.resume_s

    def step_s(self, steps: int, batch_size: int, context_tokens: int) -> float:
        """See :meth:`CostModel.step_s`."""
        factor = self._in_force.get((steps, bucket_of(batch_size)))
        if factor is None:
            factor = self._in_force.get((steps, _ALL_SIZES), 1.0)
        return factor * self.measured.step_s(steps, batch_size, context_tokens)

    def observe(self, steps: int, batch_size: int, context_tokens: int, taken_s: float) -> None:
        """Enter a step that was run; it changes nothing before :meth:`put_in_force`."""
        least, most = _BOUNDS
        expected_s = self.measured.step_s(steps, batch_size, context_tokens)
        ratio = min(max(taken_s / expected_s, least), most)
        older = 1 / _HALF_LIFE_STEPS
        for bucket in (_ALL_SIZES, bucket_of(batch_size)):
            mean = self._seen.setdefault((steps, bucket), FadingMean())
            mean.observed(self._age, older)
            mean.add(ratio, 1)
        self._age += older / STALE

    def learned(self) -> Learned:
        """What the steps seen so far say."""
        found = []
        for (steps, bucket), ratio in sorted(self._seen.items()):
            factor = self._seen[steps, _ALL_SIZES].estimate(1.0, _WEIGHT_OF_PRIOR, self._age)
            if bucket != _ALL_SIZES:
                factor = ratio.estimate(factor, _WEIGHT_OF_PRIOR, self._age)
            found.append((steps, bucket, factor))
        return found

    def put_in_force(self, learned: Learned) -> None:
        """Correct the measured times by these from now on."""
        self._in_force = {(steps, bucket): factor for steps, bucket, factor in learned}

    def factors(self) -> dict[str, float]:
        """By draft steps: what the measured times are multiplied with, over all batch sizes."""
        return {
            str(steps): round(factor, 4)
            for (steps, bucket), factor in sorted(self._in_force.items())
            if bucket == _ALL_SIZES
        }
