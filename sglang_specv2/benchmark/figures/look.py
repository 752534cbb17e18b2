"""How all pictures look: colours by arm, headings that carry the caveats, names beside curves."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

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
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (5, 2, 1.5, 2)))
"""One for each run, again from the first."""
WIDE, WIDE_ALPHA = 6.0, 0.45
"""Of the curve that others are to lie on."""
WIDTH_IN, RIGHT_IN = 9.8, 2.95
"""Of a picture, and of the room for names in it."""

STYLE = {
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
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    # The same data makes the same file, and its words stay words.
    "svg.hashsalt": "sglang-specv2",
    "svg.fonttype": "none",
}

_CHARACTERS_PER_IN = 14
_TITLE_IN, _LINE_IN = 0.47, 0.17


def saved(figure: Figure, form: str) -> bytes:
    """The picture as a file that depends on nothing but the data."""
    out = io.BytesIO()
    metadata = {"Date": None} if form == "svg" else {"Software": None}
    figure.savefig(out, format=form, dpi=130, metadata=metadata)
    return out.getvalue()


def heading(figure: Figure, title: str, lines: Sequence[str]) -> float:
    """Title and what it is of; returns the height above which it lies, as a share of the figure."""
    height = figure.get_figheight()
    figure.text(0.02, 1 - 0.18 / height, title, fontsize=14, fontweight="bold", va="top")
    width = int(figure.get_figwidth() * _CHARACTERS_PER_IN)
    wrapped = [part for line in lines for part in textwrap.wrap(line, width)]
    told = figure.text(0.02, 1 - _TITLE_IN / height, "\n".join(wrapped), fontsize=9.5, va="top")
    told.set_color(SOFT)
    return 1 - (_TITLE_IN + 0.22 + _LINE_IN * len(wrapped)) / height


def place(figure: Figure, top: float, right_in: float = RIGHT_IN) -> None:
    """The room for axes: under the heading, left of the names."""
    width, height = figure.get_figwidth(), figure.get_figheight()
    figure.subplots_adjust(
        left=0.95 / width, right=1 - right_in / width, top=top, bottom=0.6 / height
    )


def thousands(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def level_axis(axes: Axes, levels: Sequence[float]) -> None:
    """Base 2, with the levels that were measured as ticks, where they leave room for each other."""
    axes.set_xscale("log", base=2)
    shown = [levels[0]]
    for level in levels[1:]:
        if level / shown[-1] > 1.3:
            shown.append(level)
    axes.set_xticks(shown, [f"{level:g}" for level in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    if len(levels) > 1:
        margin = (levels[-1] / levels[0]) ** 0.03
        axes.set_xlim(levels[0] / margin, levels[-1] * margin)


def legend(axes: Axes, **options: Any) -> None:
    """Right of the axes, from their top down."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0, **options)


def names_at_the_end(axes: Axes, figure: Figure, ends: Sequence[tuple[float, str, str]]) -> None:
    """Names right of the curves' ends, moved apart where those meet.

    Args:
        ends: last value, name and colour of each curve.
    """
    bottom, top = axes.get_ylim()
    height_points = axes.get_position().height * figure.get_figheight() * 72
    least = 14 / height_points * (top - bottom)
    places: list[float] = []
    for value, _, _ in sorted(ends):
        places.append(max(value, places[-1] + least if places else -math.inf))
    # Down again where the highest would leave the axes.
    ceiling = math.inf if not places else max(top, bottom + least * (len(places) - 1))
    for i in reversed(range(len(places))):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - least
    for height, (_, name, colour) in zip(places, sorted(ends), strict=True):
        axes.text(
            1.02,
            height,
            name,
            transform=axes.get_yaxis_transform(),
            color=colour,
            fontsize=9.5,
            va="center",
        )
