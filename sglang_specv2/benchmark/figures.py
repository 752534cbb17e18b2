"""The pictures of one or several result folders, as PNG and SVG (matplotlib)."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.arms import ARMS, NEVER_OFF
from sglang_specv2.benchmark.tables import BASELINE, Comparison, recovery_figures

INK, SOFT, GRID = "#1f2937", "#6b7280", "#e5e7eb"
COLOURS = {
    "none": "#6b7280",
    "stock": "#c2410c",
    "adaptive-warm": "#a16207",
    "adaptive-cold": "#d4a017",
    "threshold": "#1d4ed8",
    "auto": "#0f766e",
    "off": "#7c3aed",
    "always": "#be185d",
    "threshold-unsynced": "#dc2626",
}
_PLAIN_SHADE = "#dbeafe"
_DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
_RECOVERY_STEPS = 32
_STYLE = {
    "font.family": "sans-serif",
    "font.size": 10.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "figure.facecolor": "white",
    # The same data makes the same file, and its words stay words.
    "svg.hashsalt": "sglang-specv2",
    "svg.fonttype": "none",
}


def draw_all(comparisons: Sequence[Comparison]) -> dict[str, bytes]:
    """Every picture that there is data for, by file name."""
    drawings = {"throughput": throughput, "timeline": time_line, "recovery": recovery}
    files = {}
    with matplotlib.rc_context(_STYLE):
        for name, draw in drawings.items():
            figure = draw(comparisons)
            if figure is not None:
                files[f"{name}.svg"] = _saved(figure, "svg")
                files[f"{name}.png"] = _saved(figure, "png")
    return files


def _saved(figure: Figure, form: str) -> bytes:
    out = io.BytesIO()
    # Without a date, so that the same data makes the same file.
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(out, format=form, dpi=160, metadata=metadata)
    return out.getvalue()


def throughput(comparisons: Sequence[Comparison]) -> Figure | None:
    """Output tokens a second against concurrency, and the ratio to no speculation under it."""
    shown = [comparison for comparison in comparisons if comparison.closed_loads]
    if not shown:
        return None
    with_ratios = any(BASELINE in c.arms and len(c.arms) > 1 for c in shown)
    figure = Figure(figsize=(9.6, 7.4 if with_ratios else 5.2))
    _title(figure, "Output tokens a second against concurrency", shown)
    axes: Any = figure.subplots(
        2 if with_ratios else 1,
        1,
        sharex=True,
        squeeze=False,
        gridspec_kw={"height_ratios": [3, 2] if with_ratios else [1], "hspace": 0.12},
    )
    rates = axes[0][0]
    figure.subplots_adjust(left=0.09, right=0.70, top=_top(figure, shown), bottom=0.09)
    ends = []
    for run, comparison in enumerate(shown):
        for arm in comparison.arms:
            points = comparison.curve(arm)
            if not points:
                continue
            _rate_curve(rates, comparison, arm, points, _DASHES[run % len(_DASHES)])
            ends.append((points[-1][1], _name(arm, comparison, shown), COLOURS[arm]))
    rates.set_ylim(bottom=0)
    rates.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    rates.set_ylabel("output tokens/s")
    _crossover(rates, shown[0])
    _level_axis(axes[-1][0], sorted({load.level for c in shown for load in c.closed_loads}))
    _names_at_the_end(rates, ends)
    if with_ratios:
        _ratio_panel(axes[1][0], shown)
    return figure


def _rate_curve(
    axes: Axes, comparison: Comparison, arm: str, points: Sequence[tuple[float, float]], dash: Any
) -> None:
    levels = [level for level, _ in points]
    ours = ARMS[arm].policy is not None
    axes.plot(
        levels,
        [rate for _, rate in points],
        color=COLOURS[arm],
        linestyle=dash,
        linewidth=6 if arm == BASELINE else 2.2,
        alpha=0.45 if arm == BASELINE else 1,
        marker="o",
        markersize=5 if ours else 4,
        zorder=3 if ours else 2,
    )
    spread = [
        comparison.values(arm, load).values()
        for load in comparison.closed_loads
        if comparison.values(arm, load)
    ]
    axes.fill_between(
        levels,
        [min(values) for values in spread],
        [max(values) for values in spread],
        color=COLOURS[arm],
        alpha=0.12,
        linewidth=0,
    )


def _ratio_panel(axes: Axes, comparisons: Sequence[Comparison]) -> None:
    axes.axhline(1, color=COLOURS[BASELINE], linewidth=6, alpha=0.45)
    for run, comparison in enumerate(comparisons):
        for arm in comparison.arms:
            if arm == BASELINE:
                continue
            found = [
                (load.level, comparison.ratio(arm, BASELINE, load))
                for load in comparison.closed_loads
            ]
            points = [(level, ratio) for level, ratio in found if ratio is not None]
            if not points:
                continue
            levels = [level for level, _ in points]
            colour = COLOURS[arm]
            dash = _DASHES[run % len(_DASHES)]
            values = [ratio.value for _, ratio in points]
            axes.plot(levels, values, color=colour, linewidth=1.8, linestyle=dash)
            for resolved, face in ((True, colour), (False, "white")):
                axes.plot(
                    [level for level, ratio in points if ratio.resolved is resolved],
                    [ratio.value for _, ratio in points if ratio.resolved is resolved],
                    linestyle="none",
                    marker="o",
                    markersize=5,
                    color=colour,
                    markerfacecolor=face,
                )
            for level, ratio in points:
                if ratio.known:
                    axes.plot([level, level], [ratio.low, ratio.high], color=colour, linewidth=1.2)
    axes.set_ylabel("ratio to no speculation")
    axes.set_xlabel("requests at once; bars are 95 % intervals, hollow points are not resolved")


def _crossover(axes: Axes, comparison: Comparison) -> None:
    crossover = comparison.crossover()
    if crossover is None:
        return
    level, _ = crossover
    axes.axvline(level, color=INK, linewidth=1, linestyle=(0, (2, 3)))
    words = {"va": "top", "fontsize": 9.5, "transform": axes.get_xaxis_transform()}
    axes.annotate(
        "speculation pays ", (level, 0.99), ha="right", xycoords=words["transform"], va="top"
    )
    axes.annotate(
        f" speculation costs\n cross at about {level:.0f}",
        (level, 0.99),
        ha="left",
        xycoords=words["transform"],
        va="top",
    )


def time_line(comparisons: Sequence[Comparison]) -> Figure | None:
    """A ramp: clients and batch size with the mode behind, throughput of every arm under it."""
    comparison = next((c for c in comparisons if c.timeline), None)
    if comparison is None:
        return None
    by_arm = {
        arm: [line for line in comparison.timeline if line["arm"] == arm]
        for arm in ARMS
        if any(line["arm"] == arm for line in comparison.timeline)
    }
    shaded = next((arm for arm in ("auto", "threshold", "off") if arm in by_arm), None)
    figure = Figure(figsize=(9.6, 6.2))
    _title(figure, f"A {comparison.settings['timeline']} over time", [comparison])
    axes: Any = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [2, 3], "hspace": 0.12}
    )
    figure.subplots_adjust(left=0.09, right=0.70, top=_top(figure, [comparison]), bottom=0.09)
    batches, rates = axes
    clients = next(iter(by_arm.values()))
    batches.step(
        [line["at_s"] for line in clients],
        [line["clients"] for line in clients],
        where="mid",
        color=INK,
        linewidth=1.4,
        label="clients",
    )
    ends = []
    for arm, lines in by_arm.items():
        times = [line["at_s"] for line in lines]
        smooth = _smoothed([line["tokens_s"] for line in lines])
        rates.plot(times, smooth, color=COLOURS[arm], linewidth=2 if arm == shaded else 1.4)
        ends.append((smooth[-1], labels.arm_title(arm, comparison.settings), COLOURS[arm]))
    if shaded is not None:
        lines = by_arm[shaded]
        known = [line for line in lines if line["batch_size"] is not None]
        batches.plot(
            [line["at_s"] for line in known],
            [line["batch_size"] for line in known],
            color=COLOURS[shaded],
            linewidth=1.6,
            label=f"batch of {labels.arm_title(shaded, comparison.settings)}",
        )
        for start, end in _plain_spans(lines):
            for panel in axes:
                panel.axvspan(start, end, color=_PLAIN_SHADE, linewidth=0, zorder=0)
        batches.fill_between([], [], color=_PLAIN_SHADE, label="it does not speculate")
    batches.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False, borderaxespad=0)
    batches.set_ylabel("requests")
    batches.set_ylim(bottom=0)
    rates.set_ylim(bottom=0)
    rates.set_ylabel("output tokens/s")
    rates.set_xlabel("seconds")
    rates.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    rates.legend(
        handles=[_handle(rates, colour, name) for _, name, colour in ends],
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        frameon=False,
        borderaxespad=0,
    )
    return figure


def _handle(axes: Axes, colour: str, name: str) -> Any:
    (line,) = axes.plot([], [], color=colour, linewidth=2, label=name)
    return line


def _smoothed(values: Sequence[float], reach: int = 2) -> list[float]:
    """Mean over a bin and its neighbours: a bin is a few steps long."""
    windows = [values[max(0, i - reach) : i + reach + 1] for i in range(len(values))]
    return [sum(window) / len(window) for window in windows]


def _plain_spans(lines: Sequence[dict[str, Any]]) -> Iterator[tuple[float, float]]:
    """From and to of every stretch that was seen without speculation."""
    half = (lines[1]["at_s"] - lines[0]["at_s"]) / 2 if len(lines) > 1 else 0.5
    mode, start = None, None
    for line in lines:
        mode = line["mode"] or mode
        if mode == "plain" and start is None:
            start = line["at_s"] - half
        elif mode != "plain" and start is not None:
            yield start, line["at_s"] - half
            start = None
    if start is not None:
        yield start, lines[-1]["at_s"] + half


def recovery(comparisons: Sequence[Comparison]) -> Figure | None:
    """Accept length by step after an off period, a panel for each length of it."""
    comparison = next((c for c in comparisons if c.recovery), None)
    if comparison is None:
        return None
    figures = recovery_figures(comparison)
    lengths = sorted({figure.asked_plain_tokens for figure in figures})
    if not lengths:
        return None
    picture = Figure(figsize=(3.4 * len(lengths) + 3.6, 4.6))
    caveats = [text for text in labels.caveats(comparison.provenance) if text.startswith("CPU")]
    _heading(
        picture,
        "Acceptance when speculation comes back",
        ["; ".join([comparison.provenance["recovery_pair"], *caveats])],
    )
    axes: Any = picture.subplots(1, len(lengths), sharey=True, squeeze=False)
    width = picture.get_figwidth()
    picture.subplots_adjust(
        left=0.75 / width, right=1 - 2.75 / width, top=0.78, bottom=0.14, wspace=0.08
    )
    named: dict[str, Any] = {}
    for panel, length in zip(axes[0], lengths, strict=True):
        for figure in (f for f in figures if f.asked_plain_tokens == length):
            steps = figure.by_step[:_RECOVERY_STEPS]
            numbers = range(1, len(steps) + 1)
            colour = COLOURS["none"] if figure.arm == NEVER_OFF else COLOURS[figure.arm]
            wide = figure.arm == NEVER_OFF
            (line,) = panel.plot(
                numbers,
                [step.value for step in steps],
                color=colour,
                linewidth=6 if wide else 2,
                alpha=0.45 if wide else 1,
            )
            panel.fill_between(
                numbers,
                [step.low if step.known else step.value for step in steps],
                [step.high if step.known else step.value for step in steps],
                color=colour,
                alpha=0.12,
                linewidth=0,
            )
            named.setdefault(figure.arm, line)
        panel.set_title(f"after {length} tokens without", fontsize=10.5, loc="left", color=INK)
        panel.set_xlabel("speculative step")
    axes[0][0].set_ylabel("accept length")
    words = {
        "threshold": "sglang-specv2",
        "threshold-unsynced": "sglang-specv2, draft sync off",
        "adaptive-cold": "SGLang adaptive,\nno draft extend",
        NEVER_OFF: "never off",
    }
    axes[0][-1].legend(
        list(named.values()),
        [words.get(arm, ARMS[arm].title) for arm in named],
        loc="upper left",
        bbox_to_anchor=(1.02, 1.0),
        frameon=False,
        borderaxespad=0,
    )
    return picture


def _title(figure: Figure, title: str, comparisons: Sequence[Comparison]) -> None:
    _heading(figure, title, [labels.setup(c.provenance) for c in comparisons])


def _heading(figure: Figure, title: str, lines: Sequence[str]) -> None:
    height = figure.get_figheight()
    figure.text(0.02, 1 - 0.18 / height, title, fontsize=14, fontweight="bold", va="top")
    wrapped = [part for line in lines for part in _wrapped(line, int(figure.get_figwidth() * 14))]
    figure.text(0.02, 1 - 0.47 / height, "\n".join(wrapped), fontsize=9.5, color=SOFT, va="top")


def _top(figure: Figure, comparisons: Sequence[Comparison]) -> float:
    lines = sum(
        len(_wrapped(labels.setup(c.provenance), int(figure.get_figwidth() * 14)))
        for c in comparisons
    )
    return 1 - (0.62 + 0.17 * lines) / figure.get_figheight()


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, width) or [""]


def _name(arm: str, comparison: Comparison, shown: Sequence[Comparison]) -> str:
    title = labels.arm_title(arm, comparison.settings)
    return title if len(shown) == 1 else f"{title} ({comparison.name})"


def _level_axis(axes: Axes, levels: Sequence[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(levels), [f"{level:g}" for level in levels])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("requests at once")
    if len(levels) > 1:
        margin = (levels[-1] / levels[0]) ** 0.03
        axes.set_xlim(levels[0] / margin, levels[-1] * margin)


def _names_at_the_end(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names right of the curves' ends, moved apart where those meet."""
    bottom, top = axes.get_ylim()
    height_points = axes.get_position().height * axes.get_figure().get_figheight() * 72
    least = 14 / height_points * (top - bottom)
    places: list[tuple[float, float, str, str]] = []
    for rate, name, colour in sorted(ends):
        low = places[-1][0] + least if places else -math.inf
        places.append((max(rate, low), rate, name, colour))
    over = places[-1][0] - top if places else 0
    for place, rate, name, colour in places:
        axes.annotate(
            name,
            (1, rate),
            xytext=(1.02, place - max(0.0, over)),
            xycoords=axes.get_yaxis_transform(),
            textcoords=axes.get_yaxis_transform(),
            color=colour,
            fontsize=9.5,
            va="center",
        )


@contextmanager
def styled() -> Iterator[None]:
    """The look of all pictures, for drawing a single one."""
    with matplotlib.rc_context(_STYLE):
        yield
