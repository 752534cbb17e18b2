"""Times the plain graphs with the draft sync captured in them and without, in one process.

After the worker has captured, the same family is captured again around a sync that does nothing,
and both are replayed in turn, timed with CUDA events.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import torch

BATCH_SIZES = (8, 32, 128)
REPLAYS = 50
ROUNDS = 8


def install(path: str) -> None:
    from sglang_specv2.worker import SpecV2Worker

    original = SpecV2Worker.init_cuda_graphs

    def init_cuda_graphs(worker: Any) -> None:
        original(worker)
        with open(path, "w") as out:
            for line in _measure(worker):
                out.write(json.dumps(line) + "\n")

    SpecV2Worker.init_cuda_graphs = init_cuda_graphs


def _measure(worker: Any) -> list[dict[str, Any]]:
    from sglang.srt.model_executor.runner.shape_key import ShapeKey

    from sglang_specv2.capture_failures import CaptureFailures
    from sglang_specv2.draft_sync.unsynced import Unsynced
    from sglang_specv2.plain_decode import PlainDecodeRuntime

    bare = PlainDecodeRuntime(worker.target_worker.model_runner, Unsynced(None), CaptureFailures())
    lines = []
    for size in BATCH_SIZES:
        if size not in worker.plain_runtime.sizes:
            continue
        samples: dict[str, list[float]] = {"with": [], "without": []}
        for _ in range(ROUNDS):
            for name, runtime in (("with", worker.plain_runtime), ("without", bare)):
                backend = runtime._graph_runner.backend
                samples[name].append(_replay_ms(backend, ShapeKey(size=size)))
        medians = {name: statistics.median(values) for name, values in samples.items()}
        lines.append(
            {
                "batch_size": size,
                "replays_each": REPLAYS * ROUNDS,
                "with_sync_ms": medians["with"],
                "without_ms": medians["without"],
                "share": medians["with"] / medians["without"] - 1,
            }
        )
    worker.draft_sync.reset()
    return lines


def _replay_ms(backend: Any, key: Any) -> float:
    for _ in range(5):
        backend.replay(key, None)
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(REPLAYS):
        backend.replay(key, None)
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / REPLAYS
