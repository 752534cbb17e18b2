"""The twin of a graph family that captures nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from cuda_graphs.buffers import BufferSpec, check_inputs
from cuda_graphs.family import Accounting, Forward
from cuda_graphs.key import GraphKey
from cuda_graphs.rows import live_rows
from cuda_graphs.sizes import CaptureSizes, require_size


class EagerFamily:
    """Runs a forward as it is: on any device, at any batch size, without padding.

    It takes the forward and the input declarations of a
    :class:`~cuda_graphs.graph.GraphFamily` and refuses the same inputs and outputs, so that code
    which works with one works with the other. The forward is given the caller's own tensors.

    Args:
        name: name in keys; another than the graph family's where both are in one selector.
        forward: see :data:`~cuda_graphs.family.Forward`.
        specs: the inputs by name.
    """

    def __init__(self, name: str, forward: Forward, specs: Mapping[str, BufferSpec]) -> None:
        self.name = name
        self.sizes = CaptureSizes()
        self.forward = forward
        self.specs = dict(specs)
        self.accounting = Accounting()

    def run(self, batch_size: int, **inputs: Tensor) -> Any:
        """Compute the batch.

        Args:
            batch_size: live rows.
            inputs: ``[batch_size, *row_shape]`` for every declared name.

        Raises:
            SizeError: ``batch_size`` is below 1.
            InputError: see :func:`~cuda_graphs.buffers.check_inputs`.
            OutputError: see :func:`~cuda_graphs.rows.live_rows`.
        """
        check_inputs(self.specs, require_size(batch_size), inputs)
        with torch.no_grad():
            outputs = self.forward(batch_size, dict(inputs))
        self.accounting.replays[GraphKey(self.name, batch_size)] += 1
        return live_rows(outputs, batch_size, batch_size)
