"""Compares the installed SGLang with what :mod:`sglang_specv2.seams` says we rely on."""

import functools
import gc
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sglang_specv2 import cpu
from sglang_specv2.config import SWITCH
from sglang_specv2.errors import CompatibilityError
from sglang_specv2.seams import LEDGER, Seam
from sglang_specv2.sglang_source import Source
from sglang_specv2.version import SUPPORTED_SGLANG


def ledger(*, cpu_engine: bool | None = None) -> tuple[Seam, ...]:
    """Every name that this process relies on.

    Args:
        cpu_engine: whether that includes the CPU engine's; by default, whether it is installed.
    """
    if cpu.installed() if cpu_engine is None else cpu_engine:
        from sglang_specv2.cpu.seams import CPU_LEDGER

        return (*LEDGER, *CPU_LEDGER)
    return LEDGER


def check(names: Sequence[Seam] | None = None, root: Path | None = None) -> list[str]:
    """Differences between the supported SGLang and the one that would be imported, in words.

    Args:
        names: what to look for; by default :func:`ledger`.
        root: folder of the ``sglang`` package; found without importing it by default.
    """
    names = ledger() if names is None else tuple(names)
    if root is None:
        return list(_installed_differences(names))
    source = Source(root)
    with _collector_paused():
        return [difference for seam in names if (difference := _difference(seam, source))]


def require() -> None:
    """Refuses an SGLang that differs.

    Raises:
        CompatibilityError: with every difference and the ways out.
    """
    differences = check()
    if differences:
        raise CompatibilityError(
            [
                "This SGLang is not the one sglang-specv2 is built for:",
                *(f"  - {difference}" for difference in differences),
                f"Install sglang=={SUPPORTED_SGLANG}, or a release of sglang-specv2 for this one; "
                f"{SWITCH}=0 serves with SGLang's own worker.",
            ]
        )


def installed_version() -> str | None:
    """The version of SGLang that is installed, without what follows a ``+``; None for none."""
    try:
        return version("sglang").partition("+")[0]
    except PackageNotFoundError:
        return None


@functools.cache
def _installed_differences(names: tuple[Seam, ...]) -> tuple[str, ...]:
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        return (f"SGLang: expected {SUPPORTED_SGLANG}, found none installed",)
    differences = check(names, Path(spec.submodule_search_locations[0]))
    installed = installed_version()
    if installed != SUPPORTED_SGLANG:
        differences.insert(0, f"SGLang: expected {SUPPORTED_SGLANG}, found {installed}")
    return tuple(differences)


def _difference(seam: Seam, source: Source) -> str | None:
    found = source.find(seam.path)
    if found is None:
        return f"{seam.path}: expected {seam.expected}, not found ({seam.use})"
    if _fits(seam.expected, found):
        return None
    return f"{seam.path}: expected {seam.expected}, found {found} ({seam.use})"


def _fits(expected: str, found: str) -> bool:
    if expected.endswith(", ...)"):
        return found == f"{expected[: -len(', ...)')]})" or found.startswith(expected[:-4])
    return expected == found


@contextmanager
def _collector_paused() -> Iterator[None]:
    """A syntax tree is many objects and no garbage: collections triple the time it takes."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
