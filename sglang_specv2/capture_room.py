"""Whether the GPU has memory left for one more family of graphs."""

from __future__ import annotations

from typing import Any

from sglang.srt.utils.common import get_available_gpu_memory

LEAST_FREE_GB = 0.5
"""Less is not tried: 20 sizes of an 8B target took 0.23 GB, and a request has to fit beside."""


def free_gb(model_runner: Any, *, least_of_ranks: bool = False) -> float:
    """Free memory of a model runner's device, in GB as SGLang reports it."""
    group = model_runner.tp_group
    distributed = least_of_ranks and group.world_size > 1
    return float(
        get_available_gpu_memory(
            model_runner.device,
            model_runner.gpu_id,
            distributed=distributed,
            cpu_group=group.cpu_group if distributed else None,
        )
    )


def require_room(model_runner: Any) -> None:
    """Refuse a capture that would run out of memory, or leave none for serving.

    Of all ranks: a capture holds collectives, so either all of them try or none does.

    Raises:
        MemoryError: says how much is free, and how much is wanted.
    """
    if model_runner.device == "cpu":
        return  # It captures nothing.
    free = free_gb(model_runner, least_of_ranks=True)
    if free < LEAST_FREE_GB:
        raise MemoryError(f"{free:.2f} GB free where at least {LEAST_FREE_GB} GB are wanted")
