"""Accept length by step after an off period, a panel for each length of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.alignment import FIRST_STEPS
from sglang_specv2.benchmark.arms import DRAFT_TOKENS, NEVER_OFF
from sglang_specv2.benchmark.figures.look import (
    COLOURS,
    SOFT,
    WIDE,
    WIDE_ALPHA,
    heading,
    legend,
    place,
)
from sglang_specv2.benchmark.statistics import Interval
from sglang_specv2.benchmark.tables import Comparison, RecoveryFigure, recovery_figures

_STEPS = 32
_PANEL_IN, _SIDES_IN, _RIGHT_IN = 2.9, 3.6, 2.7
_NEVER_OFF_COLOUR = "#6b7280"


def draw(comparisons: Sequence[Comparison]) -> Figure | None:
    """Of the first run that measured it; None without."""
    comparison = next((c for c in comparisons if c.recovery), None)
    figures = [] if comparison is None else recovery_figures(comparison)
    lengths = sorted({figure.asked_plain_tokens for figure in figures})
    if comparison is None or not lengths:
        return None
    picture = Figure(figsize=(max(7.4, _PANEL_IN * len(lengths) + _SIDES_IN), 4.4))
    top = heading(
        picture,
        "Acceptance when speculation comes back",
        [labels.recovery_setup(comparison.provenance)],
    )
    panels: Any = picture.subplots(
        1, len(lengths), sharex=True, sharey=True, squeeze=False, gridspec_kw={"wspace": 0.08}
    )
    place(picture, top - 0.06, _RIGHT_IN)
    curves: dict[str, Any] = {}
    for panel, length in zip(panels[0], lengths, strict=True):
        for figure in figures:
            if figure.asked_plain_tokens == length:
                curves.setdefault(figure.arm, _curve(panel, figure))
        panel.axvline(FIRST_STEPS + 0.5, color=SOFT, linewidth=0.8, linestyle=(0, (2, 3)))
        panel.set_title(f"after {length} tokens without", fontsize=10.5, loc="left")
        panel.set_xlabel("speculative step")
        panel.set_xlim(0.5, _STEPS + 0.5)
        panel.set_xticks([1, FIRST_STEPS, *range(16, _STEPS + 1, 8)])
    panels[0][0].set_ylabel(f"accept length, of {DRAFT_TOKENS}")
    panels[0][0].set_ylim(1, DRAFT_TOKENS)
    names = [labels.recovery_title(arm) for arm in curves]
    legend(panels[0][-1], handles=list(curves.values()), labels=names)
    return picture


def _curve(axes: Axes, figure: RecoveryFigure) -> Any:
    never_off = figure.arm == NEVER_OFF
    colour = _NEVER_OFF_COLOUR if never_off else COLOURS[figure.arm]
    steps = figure.by_step[:_STEPS]
    numbers = list(range(1, len(steps) + 1))
    (line,) = axes.plot(
        numbers,
        [step.value for step in steps],
        color=colour,
        linewidth=WIDE if never_off else 2,
        alpha=WIDE_ALPHA if never_off else 1,
        solid_capstyle="butt",
    )
    axes.fill_between(
        numbers,
        [_or_value(step, step.low) for step in steps],
        [_or_value(step, step.high) for step in steps],
        color=colour,
        alpha=0.12,
        linewidth=0,
    )
    return line


def _or_value(step: Interval, bound: float) -> float:
    return bound if step.known else step.value
