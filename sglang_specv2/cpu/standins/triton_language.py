"""What of triton.language is used while SGLang is imported."""

from dataclasses import dataclass
from typing import Any

__all__ = ["constexpr"]


@dataclass(frozen=True)
class constexpr:
    """A constant of a kernel: wrapped around values of a module, annotated on arguments."""

    value: Any
