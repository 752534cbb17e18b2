"""Speculative decoding for SGLang that turns itself off and on at every decode step.

Installing the package is enough: SGLang finds :mod:`sglang_specv2.plugin` through its plugin
entry points. Processes that load no SGLang plugins get the same by ``import sglang_specv2.hook``.

Importing this package imports neither torch nor sglang.
"""

from sglang_specv2.errors import (
    BatchShapeError,
    CaptureError,
    CompatibilityError,
    ConfigError,
    SpecV2Error,
    UnsupportedError,
)
from sglang_specv2.version import SUPPORTED_SGLANG, __version__

__all__ = [
    "SUPPORTED_SGLANG",
    "BatchShapeError",
    "CaptureError",
    "CompatibilityError",
    "ConfigError",
    "SpecV2Error",
    "UnsupportedError",
    "__version__",
]
