"""Output tokens a second against concurrency, and the ratio to no speculation under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.arms import ARMS
from sglang_specv2.benchmark.figures.look import (
    COLOURS,
    DASHES,
    INK,
    WIDE,
    WIDE_ALPHA,
    WIDTH_IN,
    heading,
    level_axis,
    names_at_the_end,
    place,
    thousands,
)
from sglang_specv2.benchmark.tables import BASELINE, Comparison


def draw(comparisons: Sequence[Comparison]) -> Figure | None:
    """Curves of several runs differ by their dashes; None without closed-loop rounds."""
    shown = [comparison for comparison in comparisons if comparison.closed_loads]
    if not shown:
        return None
    with_ratios = any(BASELINE in c.arms and len(c.arms) > 1 for c in shown)
    figure = Figure(figsize=(WIDTH_IN, 7.4 if with_ratios else 5.0))
    top = heading(
        figure,
        "Output tokens a second against concurrency",
        list(dict.fromkeys(labels.setup(c.provenance) for c in shown)),
    )
    panels: Any = figure.subplots(
        2 if with_ratios else 1,
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [3, 2] if with_ratios else [1], "hspace": 0.1},
    )
    place(figure, top)
    rates, last = panels[0][0], panels[-1][0]
    ends = []
    for run, comparison in enumerate(shown):
        for arm in comparison.arms:
            points = comparison.curve(arm)
            if points:
                _curve(rates, comparison, arm, points, DASHES[run % len(DASHES)])
                ends.append((points[-1][1], _name(arm, comparison, shown), COLOURS[arm]))
    rates.set_ylim(bottom=0)
    rates.set_ylabel("output tokens/s")
    thousands(rates)
    _crossover(rates, shown[0])
    level_axis(last, sorted({load.level for c in shown for load in c.closed_loads}))
    last.set_xlabel("requests at once")
    names_at_the_end(rates, figure, ends)
    if with_ratios:
        for run, comparison in enumerate(shown):
            _ratios(last, comparison, DASHES[run % len(DASHES)])
        last.axhline(1, color=COLOURS[BASELINE], linewidth=WIDE, alpha=WIDE_ALPHA, zorder=1)
        last.set_ylabel("ratio to no speculation")
        words = "bars: 95 % intervals\nhollow: not resolved"
        last.text(1.02, 0.98, words, transform=last.transAxes, fontsize=9.5, va="top")
    return figure


def _curve(
    axes: Axes, comparison: Comparison, arm: str, points: Sequence[tuple[float, float]], dash: Any
) -> None:
    levels = [level for level, _ in points]
    baseline = arm == BASELINE
    axes.plot(
        levels,
        [rate for _, rate in points],
        color=COLOURS[arm],
        linestyle=dash,
        linewidth=WIDE if baseline else 2.2,
        alpha=WIDE_ALPHA if baseline else 1,
        marker="o",
        markersize=4,
        zorder=3 if ARMS[arm].policy is not None else 2,
    )
    spread = [
        values for load in comparison.closed_loads if (values := comparison.values(arm, load))
    ]
    axes.fill_between(
        levels,
        [min(values.values()) for values in spread],
        [max(values.values()) for values in spread],
        color=COLOURS[arm],
        alpha=0.15,
        linewidth=0,
    )


def _crossover(axes: Axes, comparison: Comparison) -> None:
    crossover = comparison.crossover()
    if crossover is None:
        return
    level, _ = crossover
    axes.axvline(level, color=INK, linewidth=1, linestyle=(0, (2, 3)))
    at: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "fontsize": 9.5, "va": "top"}
    axes.text(level, 1.0, "speculation pays  ", ha="right", **at)
    words = f"  speculation costs\n  cross at about {labels.about(level)}"
    axes.text(level, 1.0, words, ha="left", **at)


def _ratios(axes: Axes, comparison: Comparison, dash: Any) -> None:
    for arm in comparison.arms:
        found = [
            (load.level, ratio)
            for load in comparison.closed_loads
            if arm != BASELINE and (ratio := comparison.ratio(arm, BASELINE, load)) is not None
        ]
        colour = COLOURS[arm]
        levels, values = [level for level, _ in found], [ratio.value for _, ratio in found]
        axes.plot(levels, values, color=colour, linewidth=1.8, linestyle=dash, zorder=2)
        for level, ratio in found:
            if ratio.known:
                interval = [ratio.low, ratio.high]
                axes.plot([level, level], interval, color=colour, linewidth=1.2, zorder=2)
            face = colour if ratio.resolved else "white"
            axes.plot(level, ratio.value, "o", color=colour, markerfacecolor=face, markersize=4.5)


def _name(arm: str, comparison: Comparison, shown: Sequence[Comparison]) -> str:
    title = labels.arm_title(arm, comparison.settings)
    return title if len(shown) == 1 else f"{title} ({comparison.name})"
