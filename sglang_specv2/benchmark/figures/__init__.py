"""The pictures of one or several result folders, as PNG and SVG (matplotlib)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import matplotlib
from matplotlib.figure import Figure

from sglang_specv2.benchmark.figures import recovery, throughput, timeline
from sglang_specv2.benchmark.figures.look import STYLE, saved
from sglang_specv2.benchmark.load import TIMELINES
from sglang_specv2.benchmark.tables import Comparison

_DRAWINGS: dict[str, Callable[[Sequence[Comparison]], Figure | None]] = {
    "throughput": throughput.draw,
    **{f"timeline-{name}": partial(timeline.draw, name=name) for name in TIMELINES},
    "recovery": recovery.draw,
}


def draw_all(comparisons: Sequence[Comparison]) -> dict[str, bytes]:
    """Every picture that there is data for, by file name."""
    files: dict[str, bytes] = {}
    with matplotlib.rc_context(STYLE):
        for name, draw in _DRAWINGS.items():
            figure = draw(comparisons)
            if figure is not None:
                files |= {f"{name}.{form}": saved(figure, form) for form in ("svg", "png")}
    return files
