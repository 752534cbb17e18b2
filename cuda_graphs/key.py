"""What a graph is known by."""

from __future__ import annotations

from dataclasses import dataclass

from cuda_graphs.sizes import require_size


@dataclass(frozen=True, order=True)
class GraphKey:
    """One family at one batch size: the identity of a graph, or of an eager run in its place.

    Attributes:
        family: name of the family.
        batch_size: rows that are computed, padding included.

    Raises:
        SizeError: ``batch_size`` is below 1.
    """

    family: str
    batch_size: int

    def __post_init__(self) -> None:
        require_size(self.batch_size)

    def __str__(self) -> str:
        return f"{self.family}[{self.batch_size}]"
