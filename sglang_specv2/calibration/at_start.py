"""Where a starting server has its step times from: a file, or a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sglang_specv2.calibration import file
from sglang_specv2.calibration.measure import Step, measure
from sglang_specv2.calibration.subject import provenance, subject_of
from sglang_specv2.config import SpecV2Config
from sglang_specv2.policy import CostModel

_SIZES_WITHOUT_GRAPHS = (1, 4, 16, 64)


def step_times(
    worker: Any, config: SpecV2Config, step: Step, choices: tuple[int, ...]
) -> CostModel:
    """Step times of a worker whose graphs are captured, the same on every rank.

    A measurement overwrites what KV slots hold and leaves what its steps left in the worker.

    Args:
        worker: the EAGLE worker.
        config: names a file to read, or one to write.
        step: runs one decode step of the worker.
        choices: numbers of draft steps.

    Raises:
        ConfigError: the file cannot be used.
        UnsupportedError: there is nothing to measure with.
    """
    if config.calibration is not None:
        cost = file.read(Path(config.calibration), subject_of(worker))
    else:
        cost = measure(worker, _sizes(worker), step, choices)
    # Ranks that decide by different numbers would run different steps.
    group = worker.target_worker.model_runner.tp_group
    cost = CostModel.from_dict(group.broadcast_object(cost.as_dict(), src=0))
    if config.calibration_out is not None and worker.ps.tp_rank == 0:
        file.write(Path(config.calibration_out), cost, subject_of(worker), provenance())
    return cost


def _sizes(worker: Any) -> list[int]:
    most = worker.target_worker.model_runner.max_running_requests
    sizes = worker.plain_runtime.sizes or _SIZES_WITHOUT_GRAPHS
    return [size for size in sizes if size <= most]
