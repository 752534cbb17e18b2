"""Batch sizes to capture, and the padding from a live batch size to one of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from cuda_graphs.errors import SizeError


def require_size(
    value: Any, what: str = "batch size", fix: str = "skip the step when no request is live"
) -> int:
    """Return ``value`` if it can be a number of rows.

    Raises:
        SizeError: it is not an int, or is below 1.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SizeError(f"{what}: expected an int, at least 1, got {value!r}; {fix}")
    return value


class CaptureSizes(Collection[int]):
    """An immutable, ascending set of batch sizes; duplicates count once. May be empty.

    Raises:
        SizeError: a size is not an int, or is below 1.
    """

    __slots__ = ("_sizes",)

    def __init__(self, sizes: Iterable[int] = ()) -> None:
        self._sizes = tuple(
            sorted({require_size(size, "capture size", "leave it out") for size in sizes})
        )

    @property
    def largest(self) -> int:
        """The largest size; 0 when there is none."""
        return self._sizes[-1] if self._sizes else 0

    def pad(self, batch_size: int) -> int | None:
        """The smallest size that holds ``batch_size`` rows, or None when none does."""
        index = bisect_left(self._sizes, batch_size)
        return self._sizes[index] if index < len(self._sizes) else None

    def __iter__(self) -> Iterator[int]:
        return iter(self._sizes)

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._sizes)

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, size: object) -> bool:
        return size in self._sizes

    def __eq__(self, other: object) -> bool:
        return self._sizes == other._sizes if isinstance(other, CaptureSizes) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._sizes)

    def __repr__(self) -> str:
        return f"CaptureSizes({list(self._sizes)})"
