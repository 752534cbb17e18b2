"""A server with the probe in its processes: what it did step by step, and what it is told to do."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from live_server import ROOT, LiveServer

PROBE = ROOT / "tests" / "probe"

# Not on a GPU, where they would wait for it and so hide what overlap may break.
SGLANGS_OWN_CHECKS = {
    # What a step relays is poisoned once it is read: reading it twice, or before it is written,
    # ends the scheduler.
    "SGLANG_IS_IN_CI": "1",
    # After every iteration of the scheduler each KV slot has exactly one owner.
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY": "1",
    "SGLANG_CHECK_KV_PAGE_INVARIANTS": "1",
}

Entries = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One request in one decode step; see the probe's ``trace``."""

    rid: str
    position: int
    pending: bool
    accepted: int


@dataclass(frozen=True)
class Step:
    """One decode step of one rank."""

    family: str
    stride: int
    graph: bool
    resumed: bool
    rows: tuple[Row, ...]

    @property
    def speculative(self) -> bool:
        return self.family.startswith("speculative")

    @property
    def mixed(self) -> bool:
        """Whether rows left pending by a plain step met rows in sync."""
        return len({row.pending for row in self.rows}) == 2


class ProbedServer(LiveServer):
    """A LiveServer that loads the probe; arguments are those of LiveServer."""

    def __init__(
        self,
        model: Path,
        log: Path,
        draft: Path | None = None,
        env: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        self._folder = log.parent / f"{log.stem}-probe"
        self._folder.mkdir()
        self._steps_read: dict[int, int] = {}
        search = [str(PROBE), *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = {
            "PYTHONPATH": os.pathsep.join(search),
            "SPECV2_PROBE_TRACE": str(self._folder / "steps"),
            "SPECV2_PROBE_SCHEDULE": str(self._folder / "schedule"),
            "SPECV2_PROBE_DRAFT_KV": str(self._folder / "draft-kv"),
            "SPECV2_PROBE_FAULT": str(self._folder / "fault"),
        }
        if options.get("device", "cpu") == "cpu":
            variables |= SGLANGS_OWN_CHECKS
        super().__init__(model, log, draft, env=variables | dict(env or {}), **options)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """At once: there is nothing that a test server would have to finish."""
        if self.is_alive():
            os.killpg(self._process.pid, signal.SIGKILL)
        super().stop()

    def schedule(self, runs: str) -> None:
        """Force the modes of the coming steps, ``5s 256p``, repeated; ``""``: the policy's own.

        Only while the server is idle.
        """
        (self._folder / "schedule").write_text(runs)

    def plant(self, fault: str) -> None:
        """Put a fault of the probe in force; ``""``: none."""
        (self._folder / "fault").write_text(fault)

    def new_steps(self, rank: int = 0) -> list[Step]:
        """The decode steps since the last call for this rank."""
        path = self._folder / f"steps.{rank}"
        lines = path.read_text().splitlines() if path.exists() else []
        start = self._steps_read.get(rank, 0)
        self._steps_read[rank] = len(lines)
        return [_step(json.loads(line)) for line in lines[start:]]

    @contextmanager
    def watching_draft_kv(self) -> Iterator[None]:
        """Keeps the draft's entries after every step of the body, for :meth:`draft_kv`."""
        watched = self._folder / "draft-kv"
        watched.mkdir()
        try:
            yield
        finally:
            self._watched = watched.rename(self._folder / f"watched-{time.monotonic_ns()}")

    def draft_kv(self) -> Iterator[tuple[str, list[Entries]]]:
        """What was watched last: (request, K and V of each rank) by step and request, in order.

        K and V are [positions, kv heads of the rank, head dim], of the positions known to be there.
        """
        steps: dict[str, list[Path]] = {}
        for path in sorted(self._watched.iterdir()):
            steps.setdefault(path.name.split("-")[0], []).append(path)
        complete = list(steps.values())
        if complete and len(complete[-1]) < len(complete[0]):
            complete.pop()  # It still ran on a rank when the watch ended.
        for paths in complete:
            ranks = [torch.load(path) for path in paths]
            for rid in ranks[0]:
                yield rid, [entries[rid] for entries in ranks]
        shutil.rmtree(self._watched)


def _step(line: dict[str, Any]) -> Step:
    columns = (line["rids"], line["positions"], line["pending"], line["accepted"])
    rows = tuple(Row(*row) for row in zip(*columns, strict=True))
    return Step(line["family"], line["stride"], line["graph"], bool(line["resumed"]), rows)
