"""A family of CUDA graphs: one computation, captured once per batch size."""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from cuda_graphs.buffers import StaticBuffers
from cuda_graphs.errors import CaptureError, SizeError
from cuda_graphs.family import Accounting, Forward
from cuda_graphs.key import GraphKey
from cuda_graphs.pool import CapturedGraph, GraphPool
from cuda_graphs.rows import live_rows
from cuda_graphs.sizes import CaptureSizes, require_size


class GraphFamily:
    """Captures a forward for every size, largest first, and replays the graph that fits a batch.

    Largest first, because the smaller graphs then fit into memory that the pool already has.

    Args:
        name: name in keys and messages.
        forward: see :data:`~cuda_graphs.family.Forward`. Warm-up and capture call it on padding
            rows only.
        sizes: batch sizes to capture, at least one.
        buffers: the inputs, with rows for the largest size. Families may share them.
        pool: memory to share with other families; by default one of its own.
        warmup_runs: runs before each capture, at least 1.

    Raises:
        SizeError: there are no sizes, ``warmup_runs`` is below 1, or ``buffers`` is too small.
    """

    def __init__(
        self,
        name: str,
        forward: Forward,
        sizes: CaptureSizes,
        buffers: StaticBuffers,
        *,
        pool: GraphPool | None = None,
        warmup_runs: int = 2,
    ) -> None:
        if not sizes:
            raise SizeError(
                f"family {name!r}: expected at least one capture size, got none; "
                "use EagerFamily where nothing is captured"
            )
        if buffers.max_rows < sizes.largest:
            raise SizeError(
                f"family {name!r}: expected buffers of at least {sizes.largest} rows, the largest "
                f"capture size, got {buffers.max_rows}; allocate more, or capture less"
            )
        self.name = name
        self.sizes = sizes
        self.forward = forward
        self.buffers = buffers
        self.accounting = Accounting()
        self._pool = pool
        self._warmup_runs = require_size(
            warmup_runs, "warmup_runs", "one run at least has to load the kernels"
        )
        self._graphs: dict[int, CapturedGraph] = {}

    @property
    def captured(self) -> bool:
        """Whether :meth:`run` can be called."""
        return bool(self._graphs)

    def capture(self) -> None:
        """Capture every size, or none: a failure releases what was captured before it.

        Raises:
            CaptureError: the forward or CUDA failed, naming family and size; the buffers' device
                is not the pool's; or the family is captured already.
        """
        if self.captured:
            raise CaptureError(
                f"family {self.name!r}: expected a family that is not captured, got one that is; "
                "call release() first"
            )
        pool = GraphPool(self.buffers.device) if self._pool is None else self._pool
        if pool.device != self.buffers.device:
            raise CaptureError(
                f"family {self.name!r}: expected buffers on {pool.device}, the pool's device, "
                f"got {self.buffers.device}; allocate both on one device"
            )
        self.buffers.clear()
        free_before = pool.free_bytes()
        started = perf_counter()
        graphs: dict[int, CapturedGraph] = {}
        with ExitStack() as undo:
            for size in reversed(self.sizes):
                graphs[size] = self._capture_size(pool, size)
                undo.callback(graphs[size].release)
            undo.pop_all()
        self._graphs = graphs
        self.accounting.capture_s = perf_counter() - started
        self.accounting.memory_bytes = max(0, free_before - pool.free_bytes())

    def run(self, batch_size: int, **inputs: Tensor) -> Any:
        """Fill the buffers, replay the smallest graph that fits, return the live rows.

        Everything is queued on the current stream. The outputs are views of memory that the next
        replay of any family on the same pool may overwrite: use or copy them before that.

        Args:
            batch_size: live rows.
            inputs: ``[batch_size, *row_shape]`` for every declared name.

        Raises:
            SizeError: ``batch_size`` is below 1 or above the largest captured size.
            InputError: see :func:`~cuda_graphs.buffers.check_inputs`.
            CaptureError: the family is not captured.
        """
        padded = self.sizes.pad(require_size(batch_size))
        if padded is None:
            raise SizeError(
                f"family {self.name!r}: expected a batch size of at most {self.sizes.largest}, "
                f"the largest captured size, got {batch_size}; "
                "run larger batches through an EagerFamily, as a Selector does"
            )
        if not self.captured:
            raise CaptureError(
                f"family {self.name!r}: expected captured graphs, got none; call capture() first"
            )
        graph = self._graphs[padded]
        self.buffers.fill(batch_size, padded, inputs)
        graph.replay()
        self.accounting.replays[GraphKey(self.name, padded)] += 1
        return live_rows(graph.outputs, padded, batch_size)

    def release(self) -> None:
        """Drop every graph; the family can be captured again."""
        for graph in self._graphs.values():
            graph.release()
        self._graphs = {}

    def _capture_size(self, pool: GraphPool, size: int) -> CapturedGraph:
        views = self.buffers.views(size)

        @torch.no_grad()
        def work() -> Any:
            outputs = self.forward(size, views)
            live_rows(outputs, size, size)
            return outputs

        try:
            return pool.capture(work, self._warmup_runs)
        except Exception as error:
            raise CaptureError(
                f"family {self.name!r}, batch size {size}: expected the forward to be captured, "
                f"got {_in_words(error)}; nothing of this family stays captured. "
                "A forward under capture must not synchronise, read values back or allocate "
                "outside torch"
            ) from error


def _in_words(error: BaseException | None) -> str:
    """The error and those that led to it: CUDA names the cause of a lost capture only there."""
    words = []
    while error is not None:
        first_line = next(iter(str(error).splitlines()), "")
        words.append(f"{type(error).__name__}: {first_line}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return ", after ".join(words)
