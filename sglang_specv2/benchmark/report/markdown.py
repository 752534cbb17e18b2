"""Pieces of Markdown: headings that carry the caveats, tables of arms by load, cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.statistics import Ratio
from sglang_specv2.benchmark.tables import Comparison

NOT_THERE = "–"
NOT_RESOLVED = "*not resolved*"
FAILED = "failed"

Cell = Callable[[str, Load], str]


def section(title: str, caveats: Sequence[str], *paragraphs: str) -> Iterator[str]:
    """A heading, which a table may be copied with, and what stands under it."""
    yield f"## {title}" + (f" ({'; '.join(caveats)})" if caveats else "")
    yield ""
    for paragraph in paragraphs:
        yield paragraph
        yield ""


def figure_section(
    comparison: Comparison,
    title: str,
    paragraphs: Sequence[str],
    cell: Cell,
    arms: Iterable[str] | None = None,
) -> Iterator[str]:
    """A row for each arm, a column for each load; nothing where no arm has the figure.

    An arm that failed says so where it has none.
    """
    rows = {
        arm: [cell(arm, load) for load in comparison.loads]
        for arm in (comparison.arms if arms is None else arms)
    }
    if all(text == NOT_THERE for cells in rows.values() for text in cells):
        return
    yield from section(title, labels.caveats(comparison.provenance), *paragraphs)
    failed = comparison.failed
    titled = [
        [
            labels.arm_title(arm, comparison.settings),
            *(FAILED if text == NOT_THERE and arm in failed else text for text in cells),
        ]
        for arm, cells in rows.items()
    ]
    yield from table(["arm", *(load.label for load in comparison.loads)], titled)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"
    yield ""


def picture(name: str, words: str, drawn: Sequence[str]) -> Iterator[str]:
    """Where it was drawn."""
    if name in drawn:
        yield f"![{words}]({name}.svg)"
        yield ""


def number(value: float | None, digits: int) -> str:
    return NOT_THERE if value is None else f"{value:.{digits}f}"


def ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOT_THERE
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.known else ""
    return f"{ratio.value:.3f}{interval}" + ("" if ratio.resolved else f" {NOT_RESOLVED}")
