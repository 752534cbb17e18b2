"""Times both modes by running the worker's own steps: draft, verify and draft extend; plain."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from sglang.srt.speculative.eagle_utils import get_draft_recurrent_hidden_state_spec
from tqdm import tqdm

from sglang_specv2.batch_state import preserved
from sglang_specv2.calibration.made_up_batch import draft_state, made_up_batch
from sglang_specv2.errors import UnsupportedError
from sglang_specv2.policy import CostModel, Point
from sglang_specv2.policy.cost import PLAIN, undisturbed

logger = logging.getLogger(__name__)

SHORT_CONTEXT, LONG_CONTEXT = 128, 2048
"""Tokens of each request at the two points of a batch size, where the pool holds so many."""

PASSES, WARM_UP, STEPS = 2, 1, 2
"""How often each point is come to, and of each time: steps not timed, steps timed together. The
fastest counts, so that what else keeps the machine busy has to do so twice, seconds apart. On a
CPU, where speed means nothing, one of each."""


class Step(Protocol):
    """Runs one decode step of a batch with a number of draft steps, 0 for a plain one."""

    def __call__(self, batch: Any, steps: int) -> None: ...


def measure(worker: Any, sizes: Sequence[int], step: Step, choices: Sequence[int]) -> CostModel:
    """Step times at every batch size, with two contexts each.

    Steps are launched back to back without waiting for them, as the scheduler does, so where
    launching takes longer than the GPU, that time is what is measured. What plain steps leave to be
    written for many of them together, the draft's K and V, is not in their time. Every
    tensor-parallel rank has to run the same steps; each returns its own times.

    Args:
        worker: the EAGLE worker, idle, with its graphs captured.
        sizes: batch sizes.
        step: runs a step.
        choices: numbers of draft steps.

    Raises:
        UnsupportedError: there are no KV slots yet.
    """
    if worker.token_to_kv_pool_allocator.get_kvcache().post_capture_active:
        raise UnsupportedError(
            "policy auto: expected KV slots to time steps with, got a pool that is filled after "
            "the capture (SGLANG_ENABLE_POST_CAPTURE_KV_SIZING); unset that, or give "
            "--speculative-calibration FILE, or a threshold"
        )
    start = time.perf_counter()
    times: dict[tuple[int, int], dict[int, float]] = {}
    visits = [size for _ in range(_passes(worker.device)) for size in sizes]
    progress = tqdm(visits, desc="Timing both modes", disable=worker.ps.tp_rank != 0)
    for size in progress:
        for context in _contexts(worker, size):
            fastest = times.setdefault((size, context), {})
            for steps in choices:
                progress.set_postfix(batch_size=size, context=context, draft_steps=steps)
                taken_s = _step_s(worker, size, context, partial(step, steps=steps))
                fastest[steps] = min(taken_s, fastest.get(steps, taken_s))
    points = undisturbed(
        [Point(size, size * context, found) for (size, context), found in times.items()]
    )
    resume_s = _resume_s(worker, sizes[len(sizes) // 2], step, max(choices))
    logger.info(
        "Timed both modes in %.1f s. Step times in ms by batch size, at the shorter context: %s.",
        time.perf_counter() - start,
        _in_words(points, choices),
    )
    return CostModel(points, resume_s)


def _passes(device: str) -> int:
    return PASSES if device == "cuda" else 1


def _in_words(points: Sequence[Point], choices: Sequence[int]) -> str:
    shorter: dict[int, Point] = {}
    for point in sorted(points, key=lambda point: point.context_tokens, reverse=True):
        shorter[point.batch_size] = point
    return "; ".join(
        f"{steps} draft steps "
        + ", ".join(f"{size}: {1e3 * shorter[size].step_s[steps]:.2f}" for size in sorted(shorter))
        for steps in choices
    )


def _contexts(worker: Any, batch_size: int) -> tuple[int, int]:
    """Two lengths of a request: so that the batch fits the pool, where it can."""
    limit = worker.target_worker.model_config.context_len - _room(worker)
    pool = worker.token_to_kv_pool_allocator.size // batch_size
    long = max(2, min(LONG_CONTEXT, limit, pool))
    return min(SHORT_CONTEXT, long // 2), long


def _room(worker: Any) -> int:
    return 2 * worker.speculative_num_draft_tokens + 2


def _step_s(worker: Any, size: int, context: int, step: Callable[[Any], Any]) -> float:
    hidden_size, dtype = get_draft_recurrent_hidden_state_spec(worker.draft_worker.draft_runner)
    state = draft_state(worker, size, hidden_size, dtype)
    with made_up_batch(worker, state, size, context, _room(worker)) as batch:

        def once() -> None:
            # A step rewrites the batch, and the draft state in it.
            with preserved(batch):
                batch.spec_info = copy.copy(state)
                step(batch)

        if worker.device != "cuda":
            once()
            return _seconds(worker.device, once, 1)
        for _ in range(WARM_UP):
            once()
        return _seconds(worker.device, once, STEPS)


def _resume_s(worker: Any, size: int, step: Step, steps: int) -> float:
    """How much longer a speculative step takes right after a plain one, which leaves the batch as
    it was."""
    context = _contexts(worker, size)[0]

    def both(batch: Any) -> None:
        step(batch, PLAIN)
        step(batch, steps)

    def fastest_s(once: Callable[[Any], None]) -> float:
        passes = range(_passes(worker.device))
        return min(_step_s(worker, size, context, once) for _ in passes)

    apart_s = sum(fastest_s(partial(step, steps=k)) for k in (PLAIN, steps))
    return max(0.0, fastest_s(both) - apart_s)


def _seconds(device: str, once: Callable[[], None], repeats: int) -> float:
    """Of one run, the mean of several behind each other."""
    if device != "cuda":
        start = time.perf_counter()
        for _ in range(repeats):
            once()
        return (time.perf_counter() - start) / repeats
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(repeats):
        once()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3 / repeats
