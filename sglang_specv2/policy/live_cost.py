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

_RECENT_HALF_LIFE = 64  # In steps of any kind.
_LASTING_HALF_LIFE = 256  # In steps of the same kind; of another they count less.
_WEIGHT_OF_PRIOR = 4.0  # In steps.
_WEIGHT_OF_ALL = 16.0  # In steps; of what recent steps of all sizes say.
_BOUNDS = (0.67, 1.5)  # Of one step: a pause of Python's says little about the next step.
_ALL_SIZES = 0

Learned = Sequence[tuple[int, int, float]]
"""Draft steps, bucket of batch sizes (0 for all), and the factor on their measured time."""


class LiveCost:
    """Has what a policy asks of a :class:`CostModel`.

    Steps are told apart by draft steps and by powers of two of the batch size. Of each kind two
    averages are kept, and each leans on what is known of all batch sizes until enough steps were
    seen. The lasting one tells a start that measured wrong, and is kept for thousands of steps of
    other kinds. The recent one tells a slow spell of the host, which is taken to be one at every
    batch size, though the small ones feel it most. It fades with steps of any kind: once a spell
    has ended speculation, it must not keep it off for as long as no speculative step says better.
    Where no recent step says anything, the lasting average counts.

    Args:
        measured: at start, or read from a file.
    """

    def __init__(self, measured: CostModel) -> None:
        self.measured = measured
        self._lasting: dict[tuple[int, int], FadingMean] = {}
        self._recent: dict[tuple[int, int], FadingMean] = {}
        """Of one bucket, as the lasting ones; of all sizes, relative to the lasting ones."""
        self._in_force: dict[tuple[int, int], float] = {}
        self._lasting_age = self._recent_age = 0.0  # In half-lives.

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
        kind = steps, bucket_of(batch_size)
        for key in ((steps, _ALL_SIZES), kind):
            lasting = self._lasting.setdefault(key, FadingMean())
            lasting.observed(self._lasting_age, 1 / _LASTING_HALF_LIFE)
            lasting.add(ratio, 1)
        self._lasting_age += 1 / _LASTING_HALF_LIFE / STALE
        self._recent_age += 1 / _RECENT_HALF_LIFE
        of_all = ratio / self._lasting_factor(*kind)
        for key, value in (((steps, _ALL_SIZES), of_all), (kind, ratio)):
            recent = self._recent.setdefault(key, FadingMean())
            recent.observed(self._recent_age, 0.0)
            recent.add(value, 1)

    def learned(self) -> Learned:
        """What the steps seen so far say."""
        return [(*kind, self._factor(*kind)) for kind in sorted(self._lasting)]

    def _factor(self, steps: int, bucket: int) -> float:
        of_all = self._recent[steps, _ALL_SIZES].estimate(1.0, _WEIGHT_OF_PRIOR, self._recent_age)
        factor = of_all * self._lasting_factor(steps, bucket)
        if bucket == _ALL_SIZES:
            return factor
        return self._recent[steps, bucket].estimate(factor, _WEIGHT_OF_ALL, self._recent_age)

    def _lasting_factor(self, steps: int, bucket: int) -> float:
        factor = self._lasting[steps, _ALL_SIZES].estimate(1.0, _WEIGHT_OF_PRIOR, self._lasting_age)
        if bucket == _ALL_SIZES:
            return factor
        return self._lasting[steps, bucket].estimate(factor, _WEIGHT_OF_PRIOR, self._lasting_age)

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
