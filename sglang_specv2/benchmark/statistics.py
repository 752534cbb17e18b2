"""Medians, ratios with their intervals, what they resolve, and where curves cross.

Intervals are percentile bootstrap intervals (Efron and Tibshirani, An Introduction to the
Bootstrap, 1993, chapter 13): 95 %, seeded, so that a report can be made again to the last digit.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sglang_specv2.benchmark.records import percentile

RESAMPLES = 4000
SEED = 1
RESOLUTION = 0.01
"""The least difference of a ratio from one that anything is claimed about."""
LEAST_ROUNDS = 3
"""Fewer say nothing about how far rounds are apart."""


@dataclass(frozen=True)
class Interval:
    """A figure and its 95 % interval; low and high are NaN where too few rounds were measured."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    @property
    def known(self) -> bool:
        return not math.isnan(self.low)


@dataclass(frozen=True)
class Ratio(Interval):
    """One arm's figure divided by another's."""

    @property
    def resolved(self) -> bool:
        """Whether the rounds carry what the value says.

        The value says: different from one by as much as it is, or, within :data:`RESOLUTION` of
        one, the same to that resolution. It is not carried where the interval is wider than that
        claim to either side, or, for a difference, where the interval includes one.
        """
        if not self.known:
            return False
        claim = abs(self.value - 1)
        if self.half_width > max(RESOLUTION, claim):
            return False
        return claim <= RESOLUTION or not self.low <= 1 <= self.high


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def paired_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> Ratio | None:
    """Median of the ratios within each round, for arms that were measured side by side.

    Args:
        a, b: figure by round; rounds that only one has are left out.
    """
    ratios = [a[key] / b[key] for key in sorted(a.keys() & b.keys())]
    if not ratios:
        return None
    return _bootstrap(median(ratios), lambda rng: median(_resample(rng, ratios)), len(ratios))


def unpaired_ratio(a: Mapping[int, float], b: Mapping[int, float]) -> Ratio | None:
    """Ratio of the medians, for arms that were measured one after the other."""
    if not a or not b:
        return None
    left, right = [a[key] for key in sorted(a)], [b[key] for key in sorted(b)]
    return _bootstrap(
        median(left) / median(right),
        lambda rng: median(_resample(rng, left)) / median(_resample(rng, right)),
        min(len(left), len(right)),
    )


def mean_ratio(a: Sequence[float], b: Sequence[float]) -> Ratio | None:
    """Ratio of the means of two independent samples."""
    if not a or not b:
        return None
    return _bootstrap(
        statistics.fmean(a) / statistics.fmean(b),
        lambda rng: statistics.fmean(_resample(rng, a)) / statistics.fmean(_resample(rng, b)),
        min(len(a), len(b)),
    )


def mean(values: Sequence[float]) -> Interval:
    """Mean of a sample, with its normal 95 % interval."""
    centre = statistics.fmean(values)
    if len(values) < LEAST_ROUNDS:
        return Interval(centre, math.nan, math.nan)
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(centre, centre - half, centre + half)


def _resample(rng: random.Random, values: Sequence[float]) -> list[float]:
    return rng.choices(values, k=len(values))


def _bootstrap(value: float, draw: Callable[[random.Random], float], rounds: int) -> Ratio:
    if rounds < LEAST_ROUNDS:
        return Ratio(value, math.nan, math.nan)
    rng = random.Random(SEED)
    drawn = [draw(rng) for _ in range(RESAMPLES)]
    low, high = percentile(drawn, 2.5), percentile(drawn, 97.5)
    assert low is not None
    assert high is not None
    return Ratio(value, low, high)


def crossing(
    levels: Sequence[float], a: Sequence[float], b: Sequence[float]
) -> tuple[float, float] | None:
    """Level and rate where two curves first cross, taken as straight between levels over log2.

    None where they do not.
    """
    for i in range(len(levels) - 1):
        before, after = a[i] - b[i], a[i + 1] - b[i + 1]
        if before * after < 0:
            share = before / (before - after)
            low, high = math.log2(levels[i]), math.log2(levels[i + 1])
            return 2 ** (low + share * (high - low)), a[i] + share * (a[i + 1] - a[i])
    return None
