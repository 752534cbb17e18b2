"""CUDA graphs by batch size: capture once per size, pad, replay, and choose what to replay.

Needs torch and nothing else. :class:`GraphFamily` captures one forward for several batch sizes,
:class:`EagerFamily` runs the same forward without graphs, and :class:`Selector` maps a mode and a
live batch size to the one that runs::

    def forward(batch_size, inputs):
        return model(inputs["x"])

    specs = {"x": BufferSpec((64,), torch.float32)}
    sizes = CaptureSizes([1, 2, 4, 8])
    graphs = GraphFamily("model", forward, sizes, StaticBuffers(specs, sizes.largest, "cuda"))
    graphs.capture()

    selector = Selector()
    selector.register("decode", graphs, eager=EagerFamily("model-eager", forward, specs))
    selection = selector.select("decode", batch_size=3)  # the graph of size 4
    y = selection.run(x=x)  # [3, ...]
"""

from cuda_graphs.buffers import BufferSpec, StaticBuffers
from cuda_graphs.eager import EagerFamily
from cuda_graphs.errors import (
    CaptureError,
    CudaGraphsError,
    InputError,
    OutputError,
    SelectionError,
    SizeError,
)
from cuda_graphs.family import Accounting, Family, Forward
from cuda_graphs.graph import GraphFamily
from cuda_graphs.key import GraphKey
from cuda_graphs.pool import GraphPool
from cuda_graphs.selector import Selection, Selector
from cuda_graphs.sizes import CaptureSizes

__all__ = [
    "Accounting",
    "BufferSpec",
    "CaptureError",
    "CaptureSizes",
    "CudaGraphsError",
    "EagerFamily",
    "Family",
    "Forward",
    "GraphFamily",
    "GraphKey",
    "GraphPool",
    "InputError",
    "OutputError",
    "Selection",
    "SelectionError",
    "Selector",
    "SizeError",
    "StaticBuffers",
]
