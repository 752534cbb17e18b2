"""Times plain steps with the draft sync and without, in one process.

A step is here the replay of the plain graph behind the kernel that prepares it, and with the sync
all that it does behind it: the staging of each step's rows, and the writes of K and V that come
due. Timed with CUDA events.
"""

from __future__ import annotations

import json
import statistics
from types import SimpleNamespace
from typing import Any

import torch

BATCH_SIZES = (8, 32, 128)
STEPS = 64
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
    lines = []
    for size in BATCH_SIZES:
        if size not in worker.plain_runtime.sizes:
            continue
        samples: dict[bool, list[float]] = {True: [], False: []}
        for _ in range(ROUNDS):
            for synced, values in samples.items():
                values.append(_step_ms(worker, size, synced))
        with_ms, without_ms = statistics.median(samples[True]), statistics.median(samples[False])
        lines.append(
            {
                "batch_size": size,
                "steps_each": STEPS * ROUNDS,
                "with_sync_ms": with_ms,
                "without_ms": without_ms,
                "share": with_ms / without_ms - 1,
            }
        )
    return lines


def _step_ms(worker: Any, size: int, synced: bool) -> float:
    from sglang.srt.model_executor.runner.shape_key import ShapeKey

    from sglang_specv2.step_ops import advance

    backend, key = worker.plain_runtime._graph_runner.backend, ShapeKey(size=size)
    sync, device = worker.draft_sync, worker.device
    rows = torch.arange(1, size + 1, device=device)
    batch = SimpleNamespace(reqs=list(range(size)), req_pool_indices=rows, seq_lens=rows)
    req_to_token = worker.req_to_token_pool.req_to_token
    hidden_states = torch.randn(
        (size, sync._hidden.shape[1]), dtype=sync._hidden.dtype, device=device
    )

    def step() -> None:
        # Something is launched between the graphs of two steps in any case. Without it one graph
        # follows the other more closely than it ever does while serving.
        advance(rows, rows, req_to_token)
        backend.replay(key, None)
        if synced:
            sync.after_plain_step(batch, rows, hidden_states, rows, SimpleNamespace())

    for _ in range(5):
        step()
    sync.catch_up()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(STEPS):
        step()
    sync.catch_up()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / STEPS
