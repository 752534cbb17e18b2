"""Every error this library raises on purpose.

::

    CudaGraphsError
    ├── SizeError        a batch size or capture size that cannot be (also a ValueError)
    ├── InputError       declared buffers or the inputs to them are wrong (also a ValueError)
    ├── OutputError      outputs that cannot be cut to the live rows (also a TypeError)
    ├── CaptureError     a graph could not be captured, or is not there (also a RuntimeError)
    └── SelectionError   a mode or family is missing or registered twice (also a LookupError)

Each message says what was expected, what was found and what to do about it.
"""


class CudaGraphsError(Exception):
    """Root of the tree."""


class SizeError(CudaGraphsError, ValueError):
    """A batch size or capture size is not a positive integer, or is above what was captured."""


class InputError(CudaGraphsError, ValueError):
    """A buffer is declared wrong, or an input differs from its declaration."""


class OutputError(CudaGraphsError, TypeError):
    """A forward returned something that has no rows to cut the padding from."""


class CaptureError(CudaGraphsError, RuntimeError):
    """A capture failed, cannot be started, or has not been made."""


class SelectionError(CudaGraphsError, LookupError):
    """A selector was asked for a mode it does not know, or given one twice."""
