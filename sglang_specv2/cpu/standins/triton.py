"""What of triton is used while SGLang is imported, and where its launchers size their grids."""

from collections.abc import Callable
from typing import Any, NoReturn

from sglang_specv2.cpu.standins import refuse

__all__ = [
    "Config",
    "JITFunction",
    "__version__",
    "autotune",
    "cdiv",
    "heuristics",
    "jit",
    "next_power_of_2",
]

__version__ = "0.0.0"


class JITFunction:
    """A kernel that refuses its launch by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.fn = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__

    def __getitem__(self, grid: object) -> Callable[..., NoReturn]:
        return self.run

    def run(self, *args: object, **kwargs: object) -> NoReturn:
        refuse(f"triton.jit kernel {self.__module__}.{self.__name__}")

    __call__ = run


def jit(function: Callable[..., Any] | None = None, **options: object) -> Any:
    return JITFunction if function is None else JITFunction(function)


def autotune(*args: object, **options: object) -> Callable[[Any], Any]:
    return lambda kernel: kernel


heuristics = autotune


class Config:
    """One choice for autotune, which looks at none."""

    def __init__(self, *args: object, **options: object) -> None:
        pass


def cdiv(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def next_power_of_2(number: int) -> int:
    return 1 << (number - 1).bit_length()
