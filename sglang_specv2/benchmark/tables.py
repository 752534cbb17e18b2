"""The figures of a result folder by arm and level, as report, pictures and terminal show them."""

from __future__ import annotations

import statistics as python_statistics
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

from sglang_specv2.benchmark.alignment import FIRST_STEPS, WINDOW_STEPS
from sglang_specv2.benchmark.arms import ARMS, FIXED_ARMS, NEVER_OFF, WITHOUT_PLUGIN
from sglang_specv2.benchmark.drawn_lengths import rate_as_asked
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.results import RECOVERY, ROUNDS, STARTS, TIMELINE, Results
from sglang_specv2.benchmark.statistics import (
    Interval,
    Ratio,
    crossing,
    mean,
    mean_ratio,
    paired_ratio,
    unpaired_ratio,
)

BASELINE = "none"
RATE = "output_tokens_s"


class Comparison:
    """What a result folder holds, read once.

    Attributes:
        arms: that gave at least one round, in the order of :data:`ARMS`.
        loads: that were measured on any arm, closed loop first.
        starts: the last start of each arm.
    """

    def __init__(self, results: Results) -> None:
        self.name = results.folder.name
        self.provenance = results.provenance()
        self.settings: dict[str, Any] = self.provenance["settings"]
        self.timeline = results.lines(TIMELINE)
        self.recovery = results.lines(RECOVERY)
        self.starts = {line["arm"]: line for line in results.lines(STARTS)}
        # The last line of a round counts: a round that was broken off is measured again.
        self._rounds: dict[tuple[str, str, float], dict[int, dict[str, Any]]] = {}
        for line in results.lines(ROUNDS):
            key = line["arm"], line["load"], line["level"]
            self._rounds.setdefault(key, {})[line["round"]] = line
        self.arms = [arm for arm in ARMS if any(key[0] == arm for key in self._rounds)]
        found = {Load(kind, level) for _, kind, level in self._rounds}
        self.loads = sorted(found, key=lambda load: (load.kind, load.level))

    @property
    def side_by_side(self) -> bool:
        return bool(self.settings["side_by_side"])

    @property
    def failed(self) -> dict[str, dict[str, Any]]:
        """Starts that ended in an error, by arm."""
        return {arm: line for arm, line in self.starts.items() if line["error"] is not None}

    def rounds(self, arm: str, load: Load) -> dict[int, dict[str, Any]]:
        return self._rounds.get((arm, load.kind, load.level), {})

    def values(self, arm: str, load: Load, figure: str = RATE) -> dict[int, float]:
        """A figure by round, where rounds have it."""
        return {
            number: line[figure]
            for number, line in self.rounds(arm, load).items()
            if line.get(figure) is not None
        }

    def median(self, arm: str, load: Load, figure: str = RATE) -> float | None:
        values = self.values(arm, load, figure)
        return python_statistics.median(values.values()) if values else None

    def ratio(self, arm: str, other: str, load: Load) -> Ratio | None:
        """Of the output rates of two arms; None where one has none."""
        of = paired_ratio if self.side_by_side else unpaired_ratio
        return of(self.values(arm, load), self.values(other, load))

    def best(self, load: Load, arms: Sequence[str] | None = None) -> str | None:
        """The arm with the highest median rate."""
        rates = {arm: self.median(arm, load) for arm in (self.arms if arms is None else arms)}
        known = {arm: rate for arm, rate in rates.items() if rate is not None}
        return max(known, key=lambda arm: known[arm]) if known else None

    def fastest_ratio(self, arm: str, others: Sequence[str], load: Load) -> float | None:
        """The highest rate of an arm to the highest of the others; None where one is lacking."""
        own = self.values(arm, load).values()
        best = [rate for other in others for rate in self.values(other, load).values()]
        return max(own) / max(best) if own and best else None

    def as_asked(self) -> Comparison | None:
        """The same rounds with simulated accept lengths as asked for, not as they were drawn.

        Without the arms of which that cannot be said; None where no length was simulated.
        """
        asked = self.settings["simulate_accept_length"]
        if asked is None:
            return None
        other = copy(self)
        other.arms = [arm for arm in self.arms if not ARMS[arm].adaptive]
        other._rounds = {
            key: {n: line | {RATE: rate_as_asked(line, asked)} for n, line in lines.items()}
            for key, lines in self._rounds.items()
            if key[0] in other.arms
        }
        return other

    def curve(self, arm: str, figure: str = RATE) -> list[tuple[float, float]]:
        """Level and median of the closed loop."""
        points = [(load.level, self.median(arm, load, figure)) for load in self.closed_loads]
        return [(level, value) for level, value in points if value is not None]

    @property
    def closed_loads(self) -> list[Load]:
        return [load for load in self.loads if load.kind == "closed"]

    def crossover(self) -> tuple[float, float] | None:
        """Where speculation stops paying: level and rate, between measured levels."""
        left, right = dict(self.curve(BASELINE)), dict(self.curve("stock"))
        levels = sorted(left.keys() & right.keys())
        return crossing(levels, [left[x] for x in levels], [right[x] for x in levels])


@dataclass(frozen=True)
class TimelineFigure:
    """What one arm gave while clients came and went.

    Attributes:
        tokens_s: output tokens a second over all of it.
        ratio: of that to what the best of :func:`rivals` gave in each phase.
        rounds: that all arms have; no others count.
    """

    arm: str
    tokens_s: float
    ratio: float | None
    rounds: int


def rivals(arms: Sequence[str]) -> list[str]:
    """Of these arms, those that an arm is compared with as time goes by: the ones that never
    switch. Ours are not among them where there are others: the best of more copies of the same is
    better by chance."""
    return [arm for arm in WITHOUT_PLUGIN if arm in arms] or [a for a in FIXED_ARMS if a in arms]


def timeline_rounds(comparison: Comparison, name: str) -> dict[str, set[int]]:
    """By arm, those of one time line."""
    rounds: dict[str, set[int]] = {}
    for line in comparison.timeline:
        if line["timeline"] == name:
            rounds.setdefault(line["arm"], set()).add(line["round"])
    return rounds


def timeline_figures(comparison: Comparison, name: str) -> list[TimelineFigure]:
    """One for each arm that has this time line; none where no round is there of all of them."""
    by_arm = timeline_rounds(comparison, name)
    shared = set[int].intersection(*by_arm.values()) if by_arm else set()
    rates: dict[str, dict[int, list[float]]] = {}  # By arm and phase, over those rounds.
    for line in comparison.timeline:
        if line["timeline"] == name and line["round"] in shared:
            phases = rates.setdefault(line["arm"], {})
            phases.setdefault(line["phase"], []).append(line["tokens_s"])
    others = [rates[arm] for arm in rivals(list(rates))]
    figures = []
    for arm in [arm for arm in ARMS if arm in rates]:
        tokens = best = 0.0
        for phase, found in rates[arm].items():
            if others and all(phase in other for other in others):
                tokens += sum(found)
                best += len(found) * max(python_statistics.fmean(other[phase]) for other in others)
        tokens_s = python_statistics.fmean(rate for found in rates[arm].values() for rate in found)
        ratio = tokens / best if best else None
        figures.append(TimelineFigure(arm, tokens_s, ratio, len(shared)))
    return figures


@dataclass(frozen=True)
class RecoveryFigure:
    """Acceptance of one arm after periods of one length.

    Attributes:
        by_step: mean accept length at each step from the first speculative one on.
        first: mean over the first steps.
        ratio: of that to the arm that was never off; None for that arm and where it is missing.
        requests: that were looked at.
        merged: that were left out, see :mod:`sglang_specv2.benchmark.recovery`.
        plain_tokens: median of the tokens decoded before.
    """

    arm: str
    asked_plain_tokens: int
    by_step: list[Interval]
    first: Interval
    ratio: Ratio | None
    requests: int
    merged: int
    plain_tokens: float


def recovery_figures(comparison: Comparison) -> list[RecoveryFigure]:
    """One for each length and arm, in that order."""
    figures = []
    for length in sorted({line["asked_plain_tokens"] for line in comparison.recovery}):
        reference = _first_means(comparison, NEVER_OFF, length)
        for arm in ARMS:
            lines = _recovery_lines(comparison, arm, length)
            steps = [request for line in lines for request in line["steps"]]
            if not steps:
                continue
            columns = [[r[i] for r in steps if len(r) > i] for i in range(WINDOW_STEPS)]
            firsts = _first_means(comparison, arm, length)
            figures.append(
                RecoveryFigure(
                    arm=arm,
                    asked_plain_tokens=length,
                    by_step=[mean(column) for column in columns if column],
                    first=mean(firsts),
                    ratio=None if arm == NEVER_OFF else mean_ratio(firsts, reference),
                    requests=len(steps),
                    merged=sum(line["merged"] for line in lines),
                    plain_tokens=python_statistics.median(
                        tokens for line in lines for tokens in line["plain_tokens"]
                    ),
                )
            )
    return figures


def _recovery_lines(comparison: Comparison, arm: str, length: int) -> list[dict[str, Any]]:
    return [
        line
        for line in comparison.recovery
        if line["arm"] == arm and line["asked_plain_tokens"] == length
    ]


def _first_means(comparison: Comparison, arm: str, length: int) -> list[float]:
    """Mean accept length of each request over its first steps; requests are independent."""
    return [
        python_statistics.fmean(request[:FIRST_STEPS])
        for line in _recovery_lines(comparison, arm, length)
        for request in line["steps"]
    ]
