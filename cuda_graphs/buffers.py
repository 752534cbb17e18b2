"""Inputs at fixed addresses, which a captured graph reads at every replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from cuda_graphs.errors import InputError, SizeError
from cuda_graphs.sizes import require_size


@dataclass(frozen=True)
class BufferSpec:
    """Declares one input.

    Attributes:
        row_shape: shape of one request's row; ``()`` for one number per request.
        dtype: exact dtype of the input; nothing is cast in silence.
        pad_value: what padding rows hold; choose one that the forward computes with harmlessly,
            such as a slot index that no request owns.

    Raises:
        SizeError: a dimension is not an int, or is below 1.
        InputError: ``dtype`` cannot hold ``pad_value``.
    """

    row_shape: tuple[int, ...]
    dtype: torch.dtype
    pad_value: bool | int | float = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_shape", tuple(self.row_shape))
        for dimension in self.row_shape:
            require_size(
                dimension, f"row_shape {list(self.row_shape)}", "declare the shape of one row"
            )
        if not self._holds_pad_value():
            raise InputError(
                f"pad_value: expected a value that {self.dtype} can hold, "
                f"got {self.pad_value!r}; change one of them"
            )

    def _holds_pad_value(self) -> bool:
        if self.dtype.is_floating_point:
            return True
        if self.dtype == torch.bool:
            return self.pad_value in (False, True)
        limits = torch.iinfo(self.dtype)
        return float(self.pad_value).is_integer() and limits.min <= self.pad_value <= limits.max


def check_inputs(
    specs: Mapping[str, BufferSpec], batch_size: int, inputs: Mapping[str, Any]
) -> None:
    """Check that there is one row per live request for every declared input, and nothing else.

    Raises:
        InputError: a name is missing or unknown, or a shape or dtype differs.
    """
    if inputs.keys() != specs.keys():
        raise InputError(
            f"inputs: expected {_names(specs)}, got {_names(inputs)}; "
            "pass every declared input, by its name, and no other"
        )
    for name, spec in specs.items():
        rows, expected = inputs[name], [batch_size, *spec.row_shape]
        if not isinstance(rows, Tensor):
            raise InputError(
                f"input {name!r}: expected a tensor, got {type(rows).__name__}; "
                f"pass a {spec.dtype} tensor of shape {expected}"
            )
        if list(rows.shape) != expected:
            raise InputError(
                f"input {name!r}: expected shape {expected}, got {list(rows.shape)}; "
                f"pass one row per live request, of which there are {batch_size}"
            )
        if rows.dtype != spec.dtype:
            raise InputError(
                f"input {name!r}: expected {spec.dtype}, got {rows.dtype}; "
                f"cast it with .to({spec.dtype})"
            )


class StaticBuffers:
    """One allocation per declared input, large enough for the largest capture size.

    Every view starts at the first row of that allocation, so all sizes share their addresses, and
    the addresses never change.

    Args:
        specs: the inputs by name.
        max_rows: rows to allocate; the largest capture size.
        device: where; a graph needs a CUDA device.

    Raises:
        SizeError: ``max_rows`` is below 1.
    """

    def __init__(
        self, specs: Mapping[str, BufferSpec], max_rows: int, device: torch.device | str = "cpu"
    ) -> None:
        self.specs: Mapping[str, BufferSpec] = MappingProxyType(dict(specs))
        self.max_rows = require_size(max_rows, "max_rows", "allocate for the largest capture size")
        self.device = torch.empty(0, device=device).device
        self._buffers = {
            name: torch.full(
                (max_rows, *spec.row_shape), spec.pad_value, dtype=spec.dtype, device=self.device
            )
            for name, spec in specs.items()
        }

    @property
    def nbytes(self) -> int:
        """Bytes allocated for all inputs together."""
        return sum(buffer.nbytes for buffer in self._buffers.values())

    def views(self, rows: int) -> dict[str, Tensor]:
        """The first ``rows`` rows of every buffer: ``[rows, *row_shape]``, no copy.

        Raises:
            SizeError: ``rows`` is below 1 or above ``max_rows``.
        """
        self._require_rows(rows)
        return {name: buffer[:rows] for name, buffer in self._buffers.items()}

    def clear(self) -> None:
        """Make every row a padding row, as in fresh buffers."""
        for name, buffer in self._buffers.items():
            buffer.fill_(self.specs[name].pad_value)

    @torch.no_grad()
    def fill(self, batch_size: int, padded_batch_size: int, inputs: Mapping[str, Tensor]) -> None:
        """Copy the live rows in and reset the rows after them, up to the padded size.

        An earlier, larger batch therefore never shows in the padding. Inputs on another device
        are copied while the caller waits. Nothing is written unless everything is right.

        Args:
            batch_size: live rows.
            padded_batch_size: rows that the graph reads.
            inputs: ``[batch_size, *row_shape]`` for every declared name.

        Raises:
            InputError: see :func:`check_inputs`.
            SizeError: not 1 <= ``batch_size`` <= ``padded_batch_size`` <= ``max_rows``.
        """
        require_size(batch_size)
        self._require_rows(padded_batch_size)
        if batch_size > padded_batch_size:
            raise SizeError(
                f"padded batch size: expected at least the {batch_size} live rows, "
                f"got {padded_batch_size}; take it from CaptureSizes.pad({batch_size})"
            )
        check_inputs(self.specs, batch_size, inputs)
        for name, buffer in self._buffers.items():
            buffer[:batch_size].copy_(inputs[name])
            if batch_size < padded_batch_size:
                buffer[batch_size:padded_batch_size].fill_(self.specs[name].pad_value)

    def _require_rows(self, rows: int) -> None:
        if require_size(rows) > self.max_rows:
            raise SizeError(
                f"rows: expected at most {self.max_rows}, the size of the buffers, got {rows}; "
                "allocate them for the largest capture size"
            )


def _names(mapping: Mapping[str, Any]) -> str:
    return ", ".join(sorted(mapping)) or "none"
