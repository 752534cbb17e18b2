"""Where a starting server has its step times from: a file, or a measurement."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

from sglang_specv2 import gpus
from sglang_specv2.calibration import file
from sglang_specv2.calibration.file import Calibration
from sglang_specv2.calibration.measure import Step, measure
from sglang_specv2.calibration.subject import provenance, subject_of
from sglang_specv2.config import SpecV2Config
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy import CostModel

logger = logging.getLogger(__name__)

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
    group, first = worker.target_worker.model_runner.tp_group, worker.ps.tp_rank == 0
    measured = None
    if config.calibration is None:
        measured = measure(worker, _sizes(worker), step, choices)
    told = _first_ranks(worker, config, measured) if first else None
    # Ranks that decide by different numbers would run different steps.
    told = group.broadcast_object(told, src=0)
    if isinstance(told, str):
        raise ConfigError(told)
    return CostModel.from_dict(told)


def _first_ranks(worker: Any, config: SpecV2Config, measured: CostModel | None) -> Any:
    """The step times as JSON has them, or why there are none in words; the other ranks wait."""
    subject = subject_of(worker)
    try:
        if measured is None:
            found = file.read(Path(cast(str, config.calibration)), subject)
        else:
            found = Calibration(measured, provenance())
        if config.calibration_out is not None:
            file.write(Path(config.calibration_out), found, subject)
    except ConfigError as error:
        return str(error)
    for words in filter(None, map(gpus.held_back, found.provenance.get("gpus", ()))):
        logger.warning("Step times were taken while %s: calibrate again when it is not.", words)
    return found.cost.as_dict()


def _sizes(worker: Any) -> list[int]:
    most = worker.target_worker.model_runner.max_running_requests
    sizes = worker.plain_runtime.sizes or _SIZES_WITHOUT_GRAPHS
    return [size for size in sizes if size <= most]
