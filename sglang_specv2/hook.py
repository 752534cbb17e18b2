"""Patches SGLang's modules as they are imported; importing this module switches that on.

For processes that load no SGLang plugins::

    import sglang_specv2.hook

SGLang itself is never imported from here. Modules that are loaded already are patched at once, the
others right after their import. However often, in whatever order and together with the plugin entry
point: each place is patched exactly once. ``SGLANG_SPECV2=0`` makes all of it do nothing.
"""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from sglang_specv2 import accounting, flags, introspection, live_control, relay, worker_choice
from sglang_specv2.config import plugin_enabled
from sglang_specv2.errors import CompatibilityError
from sglang_specv2.import_watch import ImportWatch
from sglang_specv2.patching import Undo, is_wrapped, wrap

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Patch:
    """What is done to one module of SGLang.

    ``apply`` changes the imported module and returns how to undo that; on a module that has the
    patch it does nothing. It raises CompatibilityError where the module is not what we know.
    """

    module: str
    purpose: str
    apply: Callable[[ModuleType], Undo]
    in_place: Callable[[ModuleType], bool]


def method_patch(path: str, purpose: str, around: Callable[..., Any]) -> Patch:
    """A patch that puts ``around(original, self, ...)`` in place of a method.

    Args:
        path: ``module.Class.method``, dotted.
        purpose: what for, in words that ``doctor`` prints.
        around: called with the original first.
    """
    module_name, class_name, method = path.rsplit(".", 2)

    def owner(module: ModuleType) -> type:
        cls = getattr(module, class_name, None)
        if not isinstance(cls, type):
            raise CompatibilityError(f"{module_name}.{class_name} is not defined")
        return cls

    return Patch(
        module_name,
        purpose,
        apply=lambda module: wrap(owner(module), method, around),
        in_place=lambda module: is_wrapped(owner(module), method),
    )


PATCHES: tuple[Patch, ...] = (
    Patch(flags.MODULE, "flags and keywords", flags.install, flags.in_place),
    method_patch(worker_choice.SEAM, "choice of the worker", worker_choice.choose),
    *(
        method_patch(path, "state of a running server", around)
        for path, around in introspection.AROUND.items()
    ),
    *(
        method_patch(path, "policy of a running server", around)
        for path, around in live_control.AROUND.items()
    ),
    *(method_patch(path, "relay of plain steps", around) for path, around in relay.AROUND.items()),
    *(
        method_patch(path, "speculation statistics", around)
        for path, around in accounting.AROUND.items()
    ),
)

failures: dict[Patch, str] = {}
"""Patches that could not be applied, and why."""

_undo: dict[Patch, Undo] = {}


def _patches_of(name: str) -> list[Callable[[ModuleType], None]]:
    return [partial(_apply, patch) for patch in PATCHES if patch.module == name]


def _apply(patch: Patch, module: ModuleType) -> None:
    try:
        if not patch.in_place(module):
            _undo[patch] = patch.apply(module)
        failures.pop(patch, None)
    except CompatibilityError as error:
        failures[patch] = str(error)
        logger.error("sglang-specv2 could not patch %s: %s", patch.module, error)


_watch = ImportWatch(_patches_of)


def loaded(name: str) -> ModuleType | None:
    """The module, if it is imported to its end; half-imported ones have nothing to patch yet."""
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        return None
    return module


def installed() -> bool:
    """Whether imports are being watched."""
    return _watch in sys.meta_path


def install() -> None:
    """Patches what is imported and watches for the rest.

    Raises:
        ConfigError: ``SGLANG_SPECV2`` is neither 0 nor 1.
    """
    if not plugin_enabled():
        return
    if not installed():
        sys.meta_path.insert(0, _watch)
    for patch in PATCHES:
        module = loaded(patch.module)
        if module is not None:
            _apply(patch, module)


def uninstall() -> None:
    """Takes every patch back and stops watching."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not _watch]
    while _undo:
        _undo.popitem()[1]()
    failures.clear()


install()
