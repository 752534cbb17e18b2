"""A ramp as time goes by: batch size with the mode behind it, throughput of every arm under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.figure import Figure

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.arms import ARMS
from sglang_specv2.benchmark.figures.look import (
    COLOURS,
    INK,
    WIDTH_IN,
    heading,
    legend,
    place,
    thousands,
)
from sglang_specv2.benchmark.load import TIMELINE_TITLES
from sglang_specv2.benchmark.tables import Comparison

_SHADE = "#dbeafe"
_SHADED_ARMS = ("auto", "threshold")
"""Whose mode is the background; the first that was measured."""


def draw(comparisons: Sequence[Comparison], name: str) -> Figure | None:
    """Of the first run that has this time line, its first round; None without."""
    found = (
        (c, [line for line in c.timeline if line["timeline"] == name and not line["round"]])
        for c in comparisons
    )
    comparison, drawn = next(((c, lines) for c, lines in found if lines), (None, []))
    if comparison is None:
        return None
    by_arm = {
        arm: lines for arm in ARMS if (lines := [line for line in drawn if line["arm"] == arm])
    }
    shaded = next((arm for arm in _SHADED_ARMS if arm in by_arm), None)
    figure = Figure(figsize=(WIDTH_IN, 6.2))
    title = f"Clients that come and go, a {TIMELINE_TITLES[name]}"
    top = heading(figure, title, [labels.setup(comparison.provenance)])
    panels: Any = figure.subplots(
        2, 1, sharex=True, gridspec_kw={"height_ratios": [2, 3], "hspace": 0.1}
    )
    place(figure, top)
    requests, rates = panels
    clients = max(by_arm.values(), key=len)
    requests.step(
        [line["at_s"] for line in clients],
        [line["clients"] for line in clients],
        where="mid",
        color=INK,
        linewidth=1.3,
        label="clients",
    )
    for arm, lines in by_arm.items():
        rates.plot(
            [line["at_s"] for line in lines],
            _smoothed([line["tokens_s"] for line in lines]),
            color=COLOURS[arm],
            linewidth=2.4 if arm == shaded else 1.4,
            label=labels.arm_title(arm, comparison.settings),
        )
    if shaded is not None:
        known = [line for line in by_arm[shaded] if line["batch_size"] is not None]
        requests.plot(
            [line["at_s"] for line in known],
            [line["batch_size"] for line in known],
            color=COLOURS[shaded],
            linewidth=1.8,
            label=f"decode batch, {shaded}",
        )
        for start, end in _plain_spans(by_arm[shaded]):
            for panel in panels:
                panel.axvspan(start, end, color=_SHADE, linewidth=0, zorder=0)
        requests.fill_between([], [], color=_SHADE, label=f"{shaded} does not speculate")
    for panel, label in ((requests, "requests"), (rates, "output tokens/s")):
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.margins(x=0)
        legend(panel)
    thousands(rates)
    rates.set_xlabel("seconds")
    return figure


def _smoothed(values: Sequence[float], reach: int = 2) -> list[float]:
    """Mean over a bin and its neighbours: answers that end together make waves."""
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
