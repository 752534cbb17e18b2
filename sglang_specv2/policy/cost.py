"""How long a decode step takes: measured points and what lies between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from sglang_specv2.errors import ConfigError

PLAIN = 0
"""Draft steps of a plain step."""


class StepTimes(Protocol):
    """What a policy asks about step times."""

    @property
    def steps(self) -> tuple[int, ...]:
        """Numbers of draft steps whose times are known."""

    @property
    def resume_s(self) -> float:
        """Seconds that a speculative step takes longer after a plain one."""

    def step_s(self, steps: int, batch_size: int, context_tokens: int) -> float:
        """Seconds of one step."""


@dataclass(frozen=True)
class Point:
    """One measured step.

    Attributes:
        batch_size: requests.
        context_tokens: tokens that they held together.
        step_s: seconds of a step, by its number of draft steps; 0 is a plain step.
    """

    batch_size: int
    context_tokens: int
    step_s: Mapping[int, float]


class _Line(NamedTuple):
    """Seconds of a step of one batch size by its context."""

    at_zero: float
    slope: float
    least: float

    @classmethod
    def through(cls, few: Point, many: Point, steps: int) -> _Line:
        t_few, t_many = few.step_s[steps], many.step_s[steps]
        # More context never makes a step faster; where it seems so, that is noise.
        slope = max(0.0, t_many - t_few) / (many.context_tokens - few.context_tokens)
        return cls(t_few - slope * few.context_tokens, slope, 0.9 * min(t_few, t_many))

    def at(self, context_tokens: int) -> float:
        return max(self.at_zero + self.slope * context_tokens, self.least)


class CostModel:
    """Step times by draft steps, batch size and context, linear between what was measured.

    Args:
        points: two for each batch size, with different contexts.
        resume_s: seconds that a speculative step takes longer after a plain one.

    Raises:
        ConfigError: no points, a batch size without exactly two contexts, points that name
            different draft steps, or a time that is not positive.
    """

    def __init__(self, points: list[Point], resume_s: float) -> None:
        by_size: dict[int, list[Point]] = {}
        for point in sorted(points, key=lambda point: (point.batch_size, point.context_tokens)):
            by_size.setdefault(point.batch_size, []).append(point)
        _check(by_size, resume_s)
        self.points = tuple(points)
        self.resume_s = resume_s
        self.steps = tuple(sorted(points[0].step_s))
        self._sizes = sorted(by_size)
        self._lines = {
            steps: [_Line.through(few, many, steps) for few, many in by_size.values()]
            for steps in self.steps
        }

    def step_s(self, steps: int, batch_size: int, context_tokens: int) -> float:
        """Seconds of one step; linear beyond the measured sizes too, and never below a measured
        minimum of the nearest size."""
        sizes, lines = self._sizes, self._lines[steps]
        if len(sizes) == 1:
            return lines[0].at(context_tokens)
        right = min(max(bisect_left(sizes, batch_size), 1), len(sizes) - 1)
        low, high = sizes[right - 1], sizes[right]
        share = max(0.0, (batch_size - low) / (high - low))
        t_low, t_high = lines[right - 1].at(context_tokens), lines[right].at(context_tokens)
        return max(t_low + share * (t_high - t_low), min(t_low, t_high))

    def as_dict(self) -> dict[str, Any]:
        """Plain types, for JSON; :meth:`from_dict` takes it back."""
        return {
            "resume_s": self.resume_s,
            "points": [
                {
                    "batch_size": point.batch_size,
                    "context_tokens": point.context_tokens,
                    "step_s": {str(steps): time for steps, time in sorted(point.step_s.items())},
                }
                for point in self.points
            ],
        }

    @classmethod
    def from_dict(cls, data: Any) -> CostModel:
        """The inverse of :meth:`as_dict`.

        Raises:
            ConfigError: the data is not of that form.
        """
        try:
            points = [
                Point(
                    int(point["batch_size"]),
                    int(point["context_tokens"]),
                    {int(steps): float(time) for steps, time in point["step_s"].items()},
                )
                for point in data["points"]
            ]
            resume_s = float(data["resume_s"])
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ConfigError(
                "step times: expected points with batch_size, context_tokens and step_s, got "
                f"something else ({type(error).__name__}: {error}); calibrate again"
            ) from error
        return cls(points, resume_s)


def undisturbed(points: Sequence[Point]) -> list[Point]:
    """Times without what disturbed single ones: a larger batch with as much context for each
    request is never faster, so where it seems so, the smaller one takes its time."""
    least: dict[tuple[int, int], float] = {}
    by_size: dict[int, int] = {}
    result = []
    for point in sorted(points, key=lambda p: (p.batch_size, p.context_tokens), reverse=True):
        order = by_size[point.batch_size] = by_size.get(point.batch_size, -1) + 1
        times = {}
        for steps, step_s in point.step_s.items():
            times[steps] = least[order, steps] = min(step_s, least.get((order, steps), step_s))
        result.append(Point(point.batch_size, point.context_tokens, times))
    return result[::-1]


def _check(by_size: Mapping[int, list[Point]], resume_s: float) -> None:
    if not by_size:
        raise ConfigError("step times: expected at least one batch size, got none; calibrate again")
    steps = {tuple(sorted(point.step_s)) for points in by_size.values() for point in points}
    for size, points in by_size.items():
        contexts = sorted({point.context_tokens for point in points})
        if len(points) != 2 or len(contexts) != 2:
            raise ConfigError(
                f"step times: expected two contexts for batch size {size}, got {contexts}; "
                "calibrate again"
            )
    if len(steps) != 1:
        raise ConfigError(
            f"step times: expected the same draft steps at every point, got {sorted(steps)}; "
            "calibrate again"
        )
    times = [time for points in by_size.values() for p in points for time in p.step_s.values()]
    if not all(0 < time < float("inf") for time in times) or not 0 <= resume_s < float("inf"):
        raise ConfigError(
            f"step times: expected positive seconds, got {min(times)} to {max(times)} and "
            f"{resume_s} to resume; calibrate again"
        )
