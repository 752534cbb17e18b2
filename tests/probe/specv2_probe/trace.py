"""One JSON line per decode step: what was decided, for whom, and what came of it.

============== ==================================================================================
``family``     graph family that ran the step
``stride``     rows per request of the step's result
``graph``      whether the target's forward replayed a CUDA graph
``resumed``    draft forwards that rows left pending needed first, 0 or 1
``rids``       requests, in the batch's order; the lists below are in the same
``positions``  position each step began with: tokens known before it, less one
``pending``    whether the draft's entry of the position before that, and its proposal, were due
``accepted``   tokens gained
``begin_ms``   when the step began, since the first one, on the GPU's own clock if there is one
``step_ms``    time of the step, on the same clock
============== ==================================================================================
"""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import Any

import torch


def install(path: str) -> None:
    from sglang_specv2.worker import SpecV2Worker

    trace = _Trace(path)
    original = SpecV2Worker.forward_batch_generation

    def forward(worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if not batch.forward_mode.is_decode() or worker.selector is None:
            return original(worker, batch, *args, **kwargs)
        step = _Step(worker, batch)
        result = original(worker, batch, *args, **kwargs)
        step.done(worker, result)
        trace.write(worker, step)
        return result

    SpecV2Worker.forward_batch_generation = forward


class _Step:
    """What is known of a step; tensors are read later, so that nothing waits for the GPU."""

    def __init__(self, worker: Any, batch: Any) -> None:
        self.begin = _mark(worker)
        self._families = dict(worker.step_log.counters.steps)
        self._resumes = worker.step_log.counters.resumes
        self._rids = [request.rid for request in batch.reqs]
        self._positions = batch.seq_lens.clone()
        self._pending = batch.spec_info.topk_p[:, 0] == 0

    def done(self, worker: Any, result: Any) -> None:
        steps = worker.step_log.counters.steps
        self._family = next(name for name in steps if steps[name] != self._families.get(name, 0))
        self._resumed = worker.step_log.counters.resumes - self._resumes
        self._stride = result.speculative_num_draft_tokens
        self._graph = bool(result.can_run_cuda_graph)
        # Copied to pinned memory behind the step; read once its event has passed.
        self._columns = [
            column.to("cpu", non_blocking=True)
            for column in (self._positions, self._pending, result.accept_lens.clone())
        ]
        self._end = _mark(worker)

    def line(self, origin: Any) -> str:
        step_ms = _elapsed_ms(self.begin, self._end)
        positions, pending, accepted = (column.tolist() for column in self._columns)
        return json.dumps(
            {
                "family": self._family,
                "stride": self._stride,
                "graph": self._graph,
                "resumed": self._resumed,
                "rids": self._rids,
                "positions": positions,
                "pending": pending,
                "accepted": accepted,
                "begin_ms": _elapsed_ms(origin, self.begin),
                "step_ms": step_ms,
            }
        )


class _Trace:
    """Appends to a file for each rank, as soon as a step is over.

    On a GPU a thread waits for that, so that the scheduler does not.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._origin: Any = None
        self._steps: queue.SimpleQueue[tuple[Any, _Step]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def write(self, worker: Any, step: _Step) -> None:
        self._origin = self._origin or step.begin
        self._steps.put((worker.ps.tp_rank, step))
        if worker.device != "cuda":
            self._append()
        elif self._thread is None:
            self._thread = threading.Thread(target=self._append_for_ever, daemon=True)
            self._thread.start()

    def _append_for_ever(self) -> None:
        while True:
            self._append()

    def _append(self) -> None:
        rank, step = self._steps.get()
        with open(f"{self._path}.{rank}", "a") as out:
            out.write(step.line(self._origin) + "\n")


def _mark(worker: Any) -> Any:
    if worker.device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _elapsed_ms(begin: Any, end: Any) -> float:
    if isinstance(begin, float):
        return (end - begin) * 1e3
    end.synchronize()
    return begin.elapsed_time(end)
