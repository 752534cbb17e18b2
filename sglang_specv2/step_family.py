"""A graph family whose graphs SGLang holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cuda_graphs import CaptureSizes

Step = Callable[..., Any]


class StepFamily:
    """A graph family whose graphs SGLang holds: ``run`` is a whole decode step of the worker.

    Satisfies :class:`cuda_graphs.Family`.
    """

    def __init__(self, name: str, sizes: CaptureSizes, step: Step) -> None:
        self.name = name
        self.sizes = sizes
        self._step = step

    def run(self, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        return self._step(self.sizes.pad(batch_size), *args, **kwargs)
