"""The demo's live picture: load and mode over time, the numbers of now, an answer being written."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from sglang_specv2.demo.sample import NOT_YET, Sample

STYLES = {"speculative": "green", "plain": "dark_orange", NOT_YET: "dim"}
TALLEST = 12
HISTORY_COLUMNS = 46
ANSWER_LINES = 5
WIDTH = 80
"""All of it fits a terminal of 80 columns and 24 rows."""


class Screen:
    """Redraws itself at every sample; its last picture stays on the terminal.

    Args:
        threshold: batch size, in requests, above which speculation stops.
        console: the terminal, by default standard output.
    """

    interval_s = 0.5

    def __init__(self, threshold: int, console: Console | None = None) -> None:
        self._threshold = threshold
        self._samples: list[Sample] = []
        self._console = console or Console()
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def waiting(self, what: str) -> AbstractContextManager[object]:
        return self._console.status(what)

    def show(self, sample: Sample, writing: tuple[str, str]) -> None:
        self._samples.append(sample)
        self._live.update(picture(self._samples, self._threshold, writing), refresh=True)


def picture(samples: list[Sample], threshold: int, writing: tuple[str, str]) -> RenderableType:
    """The whole view of ``samples``, oldest first; the last one is now."""
    now = samples[-1]
    style = STYLES[now.state.mode]
    top = Columns([_history(samples, threshold), _numbers(now, threshold)], padding=(0, 2))
    caption = "tokens/s are of this CPU, where a plain step is not what it is on a GPU"
    return Group(
        Panel(top, title=f"[bold {style}]{now.state.mode}", border_style=style, width=WIDTH),
        _answer(*writing),
        Text(f" {caption}", style="dim"),
    )


def _history(samples: list[Sample], threshold: int) -> Text:
    """Batch size over time in the modes' colours, from the beginning, with the threshold drawn."""
    columns = min(len(samples), HISTORY_COLUMNS)
    samples = [samples[(i + 1) * len(samples) // columns - 1] for i in range(columns)]
    drawn = Text()
    for level in range(TALLEST, 0, -1):
        drawn.append(f"{level:2} " if level in (1, threshold, TALLEST) else "   ", style="dim")
        empty = "╌" if level == threshold else " "
        for sample in samples:
            if sample.state.batch_size >= level:
                drawn.append("█", style=STYLES[sample.state.mode])
            else:
                drawn.append(empty, style="dim")
        drawn.append(empty * (HISTORY_COLUMNS - len(samples)) + "\n", style="dim")
    drawn.append("   requests decoded at once: ", style="dim")
    drawn.append("speculative", style=STYLES["speculative"]).append(", ", style="dim")
    return drawn.append("plain", style=STYLES["plain"])


def _numbers(now: Sample, threshold: int) -> Table:
    accepted = "–" if now.accept_length is None else f"{now.accept_length:.2f} of 3"
    rows = {
        "clients": str(now.clients),
        "batch size": f"{now.state.batch_size}",
        "threshold": str(threshold),
        "accept length": accepted,
        "tokens/s": f"{now.tokens_s:.0f}",
        "tokens": str(now.state.tokens),
        "switches": str(now.state.switches),
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    # As wide as the widest value, so that the columns stay where they are.
    table.add_column(style="bold", justify="right", min_width=len("2.50 of 3"))
    table.add_row("", "")
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _answer(question: str, text: str) -> Panel:
    """The last lines of an answer; as many rows at every moment, so that nothing jumps."""
    lines = text.strip("\n").splitlines()[-ANSWER_LINES:]
    lines += [""] * (ANSWER_LINES - len(lines))
    code = Syntax("\n".join(lines), "python", theme="ansi_dark", background_color="default")
    return Panel(code, title=f"[dim]{question}", title_align="left", width=WIDTH, style="dim")
