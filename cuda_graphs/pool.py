"""The CUDA half of a capture: the memory that graphs share and the stream they are captured on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from cuda_graphs.errors import CaptureError

_invalidated_graphs: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture CUDA invalidated, kept for good.

torch leaves callbacks behind that point at such a graph; a few bytes are the price of not letting
them dangle.
"""


class CapturedGraph:
    """A recorded graph and the tensors that each replay writes.

    Attributes:
        outputs: what the captured work returned. A replay of any graph of the same pool may
            overwrite them.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, outputs: Any) -> None:
        self._graph = graph
        self.outputs = outputs

    def replay(self) -> None:
        """Queue the recorded work on the current stream."""
        self._graph.replay()

    def release(self) -> None:
        """Give the graph and its outputs back to the pool; it cannot be replayed any more."""
        self._graph.reset()
        self.outputs = None


class GraphPool:
    """Device memory shared by captured graphs, of one family or of several.

    The graphs reuse each other's scratch memory, so that together they need that of the largest
    of them, and room for the outputs of each. The price: they must not run at the same time, and
    a replay may overwrite the outputs of every other graph in the pool. Memory stays with the
    pool until the pool and its graphs are gone.

    Args:
        device: a CUDA device; the current one by default.
        handle: torch's token of an existing pool to join, as from
            ``torch.cuda.graph_pool_handle()``; by default a new pool.

    Raises:
        CaptureError: there is no such CUDA device.
    """

    def __init__(self, device: torch.device | str = "cuda", handle: Any = None) -> None:
        device = torch.device(device)
        if device.type != "cuda" or not torch.cuda.is_available():
            raise CaptureError(
                f"graph pool: expected a CUDA device, got {str(device)!r}"
                f"{'' if torch.cuda.is_available() else ' and no CUDA in this process'}; "
                "use EagerFamily where there is none"
            )
        index = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", index)
        with torch.cuda.device(self.device):
            self.handle = torch.cuda.graph_pool_handle() if handle is None else handle
            self.stream = torch.cuda.Stream()
            self._invalidated = False
            # A pool dies with its last graph, and torch cannot capture into a dead one as long as
            # a tensor from it is alive. This graph, which needs no memory, keeps the pool alive.
            self._marker = torch.zeros(1, device=self.device)
            self._keepalive = self.capture(self._marker.zero_, warmup_runs=1)

    def capture(self, work: Callable[[], Any], warmup_runs: int) -> CapturedGraph:
        """Run ``work`` some times on a side stream, then record it.

        The warm-up is what loads kernels, creates library handles and tunes; none of that may
        happen during the recording.

        When ``work`` raises, the partial graph is dropped, the current stream is what it was, and
        the pool can be used again. It cannot when CUDA itself invalidated the recording, as it
        does when ``work`` synchronises or reads a value back; other pools still can, but random
        numbers on this device may be lost to the process, depending on torch's version.

        Raises:
            CaptureError: this pool cannot be captured into.
            Exception: whatever ``work`` or CUDA raised.
        """
        if self._invalidated:
            raise CaptureError(
                "graph pool: expected a usable pool, got one in which CUDA invalidated a capture; "
                "make a new GraphPool"
            )
        with torch.cuda.device(self.device):
            caller = torch.cuda.current_stream()
            self.stream.wait_stream(caller)
            with torch.cuda.stream(self.stream):
                for _ in range(warmup_runs):
                    work()
            caller.wait_stream(self.stream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            try:
                with torch.cuda.graph(graph, pool=self.handle, stream=self.stream):
                    outputs = work()
            except BaseException:
                self._clean_up(graph, caller)
                raise
        return CapturedGraph(graph, outputs)

    def free_bytes(self) -> int:
        """Free memory of the device, once everything cached by torch and not in use is returned.

        This asks the driver (``torch.cuda.mem_get_info``) rather than torch's allocator
        (``memory_reserved``), which does not see what an instantiated graph, a loaded kernel or a
        library's workspace takes. The price is that other processes on the device show in it.
        """
        with torch.cuda.device(self.device):
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            return torch.cuda.mem_get_info()[0]

    def _clean_up(self, graph: torch.cuda.CUDAGraph, caller: torch.cuda.Stream) -> None:
        # torch.cuda.graph restores the stream and ends the allocator's recording only after CUDA
        # ended the capture without an error.
        torch.cuda.set_stream(caller)
        try:
            torch._C._cuda_endAllocateToPool(self.device.index, self.handle)
        except RuntimeError:
            graph.reset()
        else:
            torch._C._cuda_releasePool(self.device.index, self.handle)
            _invalidated_graphs.append(graph)
            self._invalidated = True
