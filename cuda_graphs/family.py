"""What a graph family is: one computation, to be run at many batch sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from cuda_graphs.key import GraphKey
from cuda_graphs.sizes import CaptureSizes

Forward = Callable[[int, dict[str, Tensor]], Any]
"""``forward(batch_size, inputs)``: computes ``batch_size`` rows from inputs ``[batch_size, ...]``.

The batch size includes padding. Every tensor in what it returns has ``batch_size`` rows. It runs
without autograd, must not depend on values it would have to read back from the device, and must
not keep or change its inputs.
"""


class Family(Protocol):
    """One computation, captured for some batch sizes or for none.

    Anything with these three members can be registered with a
    :class:`~cuda_graphs.selector.Selector`, such as a wrapper around another library's graphs.
    """

    @property
    def name(self) -> str:
        """Unique among the families of a selector."""

    @property
    def sizes(self) -> CaptureSizes:
        """Batch sizes with a graph; a batch is padded to the smallest that holds it.

        A family without any runs eagerly, at every batch size.
        """

    def run(self, batch_size: int, *args: Any, **kwargs: Any) -> Any:
        """Compute a batch of ``batch_size`` live rows and return those rows only."""


@dataclass
class Accounting:
    """What a family has cost and done.

    Attributes:
        capture_s: seconds that the last capture took, warm-up included.
        memory_bytes: device memory that it took; see
            :meth:`GraphPool.free_bytes <cuda_graphs.pool.GraphPool.free_bytes>` for the measure.
            0 is possible where a family fits into memory that its pool already had.
        replays: runs by key. An eager family counts its runs here, too.
    """

    capture_s: float = 0.0
    memory_bytes: int = 0
    replays: Counter[GraphKey] = field(default_factory=Counter)
