"""What the terminal shows while it runs: a table that fills, and a bar. Plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

from sglang_specv2.benchmark.load import Load


class Display:
    """Lines of text, one for each measurement."""

    def __init__(self, arms: Sequence[str], loads: Sequence[Load]) -> None:
        self._arms, self._loads = arms, loads
        self._rates: dict[tuple[str, str], list[float]] = {}
        self._failed: dict[str, str] = {}
        self._left_out: set[tuple[str, str]] = set()
        self._total = self._done = 0

    @contextmanager
    def shown(self, total: int) -> Iterator[None]:
        """Shows progress towards ``total`` measurements during the body."""
        self._total = total
        yield

    def say(self, text: str) -> None:
        print(text, flush=True)

    def doing(self, what: str) -> None:
        self.say(f"[{self._done}/{self._total}] {what}")

    def done(self) -> None:
        self._done += 1

    def rate(self, arm: str, load: Load, tokens_s: float) -> None:
        """A round's output tokens a second."""
        self._rates.setdefault((arm, load.label), []).append(tokens_s)
        self.say(f"    {arm} {load.label}: {tokens_s:.0f} output tokens/s")

    def failed(self, arm: str, reason: str, fewer: int) -> None:
        """An arm that ends here, and how many measurements are not made therefore."""
        self._failed[arm] = reason
        self._total -= fewer
        self.say(f"    FAILED {reason}; the other arms go on")

    def left_out(self, arm: str, what: str) -> None:
        """Told at the first round of ``what`` that does not fit; the report counts the rounds."""
        self.done()
        if (arm, what) not in self._left_out:
            self._left_out.add((arm, what))
            self.say(f"    left out, no time for more of {arm}, {what}")

    def cells(self) -> Iterator[list[str]]:
        """Rows of the table so far: an arm, then its median at each load."""
        for arm in self._arms:
            rates = [self._rates.get((arm, load.label)) for load in self._loads]
            cells = [f"{median(found):.0f}" if found else "·" for found in rates]
            yield [arm, *cells, "failed" if arm in self._failed else ""]


class LiveDisplay(Display):
    """A table with a bar under it, by rich; on ``console``, or on standard output."""

    def __init__(self, arms: Sequence[str], loads: Sequence[Load], console: Any = None) -> None:
        super().__init__(arms, loads)
        from rich.live import Live
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._task = self._progress.add_task("", total=None)
        self._live = Live(get_renderable=self._renderable, console=console, refresh_per_second=4)

    def _renderable(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        table = Table(title="output tokens/s, median so far")
        table.add_column("arm")
        for load in self._loads:
            table.add_column(load.label, justify="right")
        table.add_column("")
        for row in self.cells():
            table.add_row(*row)
        return Group(table, self._progress)

    @contextmanager
    def shown(self, total: int) -> Iterator[None]:
        self._total = total
        self._progress.update(self._task, total=total)
        with self._live:
            yield

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def doing(self, what: str) -> None:
        self._progress.update(self._task, description=what)

    def done(self) -> None:
        self._progress.advance(self._task)

    def rate(self, arm: str, load: Load, tokens_s: float) -> None:
        self._rates.setdefault((arm, load.label), []).append(tokens_s)

    def failed(self, arm: str, reason: str, fewer: int) -> None:
        super().failed(arm, reason, fewer)
        self._progress.update(self._task, total=self._total)


def make(arms: Sequence[str], loads: Sequence[Load]) -> Display:
    """A live table on a terminal where rich is installed, lines otherwise."""
    if not sys.stdout.isatty():
        return Display(arms, loads)
    try:
        return LiveDisplay(arms, loads)
    except ImportError:
        return Display(arms, loads)
