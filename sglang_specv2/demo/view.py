"""How the demo looks: a live picture where there is a terminal, else a line for each second."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Protocol

from sglang_specv2.demo.sample import Sample

HEADER = "seconds  clients  batch  mode         accept length  tokens/s*  switches"
FOOTNOTE = (
    "Accept length: tokens per verify in that second, at most 3. A plain step verifies nothing.\n"
    "* On this CPU, where a plain step is not what it is on a GPU."
)


class View(Protocol):
    """Shows samples between ``with`` and its end.

    Attributes:
        interval_s: seconds from one sample to the next.
    """

    interval_s: float

    def __enter__(self) -> View: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def waiting(self, what: str) -> AbstractContextManager[object]:
        """Shows, where the view is alive, that something is being waited for."""

    def show(self, sample: Sample, writing: tuple[str, str]) -> None:
        """Shows one more sample, and a question with its answer as far as it is written."""


def choose(threshold: int, *, plain: bool) -> View:
    """The live view on a terminal where rich is installed; lines elsewhere or when ``plain``."""
    if plain or not sys.stdout.isatty():
        return Lines(threshold)
    if importlib.util.find_spec("rich") is None:
        print("Lines only: rich is not installed; pip install 'sglang-specv2[plots]'\n")
        return Lines(threshold)
    from sglang_specv2.demo.screen import Screen

    return Screen(threshold)


class Lines:
    """A line for each second, with the batch drawn as a bar up to and past the threshold."""

    interval_s = 1.0

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold

    def __enter__(self) -> Lines:
        print(f"{FOOTNOTE}\n\n{HEADER}", flush=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def waiting(self, what: str) -> AbstractContextManager[object]:
        return nullcontext()

    def show(self, sample: Sample, writing: tuple[str, str]) -> None:
        print(line(sample, self._threshold), flush=True)


def line(sample: Sample, threshold: int) -> str:
    """One row under :data:`HEADER`."""
    state = sample.state
    within = "■" * min(state.batch_size, threshold)
    past = "□" * max(state.batch_size - threshold, 0)
    accepted = "–" if sample.accept_length is None else f"{sample.accept_length:.2f}"
    return (
        f"{sample.seconds:7.0f}  {sample.clients:7}  {state.batch_size:5}  {state.mode:<11}  "
        f"{accepted:>13}  {sample.tokens_s:9.0f}  {state.switches:8}   {within}{past}"
    )
