"""Forces the mode of every step from a file, which a test may rewrite while the server is idle.

The file holds run lengths that repeat, ``5s 256p``: five speculative steps, then 256 plain ones;
``5s1`` are five with one draft step each.
Writing it starts them over. An empty or missing file leaves the decision to the server's policy.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def install(path: str) -> None:
    from sglang_specv2.worker import SpecV2Worker

    schedule = _ScheduleFromFile(Path(path))
    original = SpecV2Worker._decide

    def _decide(worker: Any, batch: Any, rows: int) -> Any:
        return schedule.decide() or original(worker, batch, rows)

    SpecV2Worker._decide = _decide


class _ScheduleFromFile:
    """Each rank reads the file for itself; they agree because it changes between requests only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_ns = 0
        self._steps: Iterator[Any] | None = None

    def decide(self) -> Any:
        from sglang_specv2.policy import Decision

        self._reread()
        if self._steps is None:
            return None
        mode, steps = next(self._steps)
        return Decision(mode, switched=False, reason=f"as {self._path} says", steps=steps)

    def _reread(self) -> None:
        written_ns = self._path.stat().st_mtime_ns if self._path.exists() else 0
        if written_ns != self._written_ns:
            self._written_ns = written_ns
            runs = parse(self._path.read_text()) if written_ns else []
            self._steps = iter(itertools.cycle(runs)) if runs else None


def parse(text: str) -> list[Any]:
    """Mode and draft steps of each step of one round; None: as the server was started."""
    from sglang_specv2.policy import Mode

    modes = {"s": Mode.SPECULATIVE, "p": Mode.PLAIN}
    steps: list[Any] = []
    for run in text.split():
        match = re.fullmatch(r"(\d+)([sp])(\d*)", run)
        if match is None:
            raise ValueError(f"expected runs like '5s 256p', got {text!r}")
        steps += [(modes[match[2]], int(match[3]) if match[3] else None)] * int(match[1])
    return steps
