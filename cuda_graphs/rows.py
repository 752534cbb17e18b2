"""Cutting the padding off what a forward returned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from cuda_graphs.errors import OutputError

_CONSTANTS = (type(None), bool, int, float, str)


def live_rows(outputs: Any, rows: int, live: int, path: str = "outputs") -> Any:
    """Return ``outputs`` with every tensor cut to its first ``live`` rows, as views.

    Tuples, named tuples, lists, dicts and dataclasses are walked and rebuilt; None, bools,
    numbers and strings pass through.

    A tensor without one row per request is refused even when nothing is to be cut, since padding
    rows may have flowed into it: a mean over the batch, say.

    Args:
        outputs: tensors ``[rows, ...]``, nested at will.
        rows: rows computed, padding included.
        live: rows to keep.
        path: where ``outputs`` sits, for messages.

    Raises:
        OutputError: a tensor's first dimension is not ``rows``, or a value is of another type.
    """
    if isinstance(outputs, Tensor):
        if outputs.dim() == 0 or outputs.shape[0] != rows:
            raise OutputError(
                f"{path}: expected a tensor with {rows} rows, one per request, got shape "
                f"{list(outputs.shape)}; return it with the requests as its first dimension"
            )
        return outputs[:live]
    if isinstance(outputs, _CONSTANTS):
        return outputs
    if dataclasses.is_dataclass(outputs) and not isinstance(outputs, type):
        return dataclasses.replace(
            outputs,
            **{
                field.name: live_rows(
                    getattr(outputs, field.name), rows, live, f"{path}.{field.name}"
                )
                for field in dataclasses.fields(outputs)
                if field.init
            },
        )
    if isinstance(outputs, Mapping):
        return {
            name: live_rows(value, rows, live, f"{path}[{name!r}]")
            for name, value in outputs.items()
        }
    if isinstance(outputs, tuple | list):
        items = [
            live_rows(value, rows, live, f"{path}[{index}]") for index, value in enumerate(outputs)
        ]
        return outputs._make(items) if hasattr(outputs, "_make") else type(outputs)(items)
    raise OutputError(
        f"{path}: expected a tensor, tuple, list, dict, dataclass or constant, "
        f"got {type(outputs).__name__}; return one of these"
    )
