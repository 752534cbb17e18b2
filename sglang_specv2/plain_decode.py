"""The plain decode family: the target's own DECODE graphs, captured beside the speculative ones.

With speculation, SGLang captures the target for TARGET_VERIFY only, so "off" would be a verify of
one token. Here the same target is captured a second time at one token per request, with an
attention backend instance of its own (the verify graphs keep theirs), and every step can choose.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import (
    Backend,
    Phase,
    check_cuda_graph_backend,
)
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode
from sglang.srt.model_executor.runner import DecodeCudaGraphRunner
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

from cuda_graphs import CaptureSizes
from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.capture_room import free_gb, require_room

logger = logging.getLogger(__name__)


class PlainDecodeGraphRunner(DecodeCudaGraphRunner):
    """SGLang's decode runner at one token per request.

    The hidden states of every row are captured (FULL), because the draft reads them later.
    """

    def __init__(self, model_runner: Any, attn_backend: Any) -> None:
        super().__init__(model_runner, attn_backend=attn_backend)

    def capture_prepare(self, size: int, *args: Any, **kwargs: Any) -> Any:
        self.capture_hidden_mode = CaptureHiddenMode.FULL
        return super().capture_prepare(size, *args, **kwargs)


class PlainDecodeRuntime:
    """What the target forward needs to run plain: graphs, attention backend, how to swap them in.

    Args:
        model_runner: the target's.
        failures: decides what becomes of a capture that fails.

    Attributes:
        sizes: captured batch sizes; empty when CUDA graphs are disabled, the device has none, or
            they could not be captured.
        capture_s: seconds the capture took.
        memory_gb: GPU memory the capture took, in GB as SGLang reports it.
    """

    def __init__(self, model_runner: Any, failures: CaptureFailures) -> None:
        self._model_runner = model_runner
        self.capture_s = 0.0
        self.memory_gb = 0.0
        self._graph_runner: PlainDecodeGraphRunner | None = None
        self.attn_backend = model_runner.attn_backend
        if model_runner.device != "cpu" and not check_cuda_graph_backend(
            Phase.DECODE, Backend.DISABLED
        ):
            self._capture(failures)
        self.sizes = CaptureSizes(self._graph_runner.capture_bs if self._graph_runner else ())

    def _capture(self, failures: CaptureFailures) -> None:
        runner = self._model_runner
        before_gb = free_gb(runner)
        start = time.perf_counter()

        def capture() -> tuple[Any, PlainDecodeGraphRunner]:
            require_room(runner)
            with _target_without_speculation(runner):
                attn_backend = runner._get_attention_backend(init_new_workspace=True)
                return attn_backend, PlainDecodeGraphRunner(runner, attn_backend)

        captured = failures.attempt("the plain decode graphs", capture)
        if captured is None:
            return
        self.attn_backend, self._graph_runner = captured
        self.capture_s = time.perf_counter() - start
        self.memory_gb = before_gb - free_gb(runner)
        logger.info(
            "Captured %d plain decode graphs in %.2f s, %.2f GB.",
            len(self._graph_runner.capture_bs),
            self.capture_s,
            self.memory_gb,
        )

    def can_replay(self, forward_batch: Any) -> bool:
        """Whether SGLang's runner would replay a graph for this batch."""
        return self._graph_runner is not None and bool(
            self._graph_runner.can_run_graph(forward_batch)
        )

    @contextmanager
    def swapped_in(self, *, graphs: bool) -> Iterator[None]:
        """Make the target forward plain for one step; ``graphs=False`` forces the eager forward."""
        runner = self._model_runner
        verify_runner, verify_backend = runner.decode_cuda_graph_runner, runner.attn_backend
        runner.decode_cuda_graph_runner = self._graph_runner if graphs else None
        runner.attn_backend = self.attn_backend
        try:
            yield
        finally:
            runner.decode_cuda_graph_runner = verify_runner
            runner.attn_backend = verify_backend


@contextmanager
def _target_without_speculation(model_runner: Any) -> Iterator[None]:
    """Let SGLang's runner classes see a target that does not speculate, while they are built.

    They read the mode and the rows per request off the model runner, so this is where DECODE at
    width one comes from. Everything is put back, also when the capture raises.
    """
    algorithm, workspace = model_runner.spec_algorithm, model_runner.init_new_workspace
    model_runner.spec_algorithm = SpeculativeAlgorithm.NONE
    try:
        yield
    finally:
        model_runner.spec_algorithm = algorithm
        model_runner.init_new_workspace = workspace
