"""Patches SGLang's modules as they are imported; importing this module switches that on.

For processes that load no SGLang plugins::

    import sglang_specv2.hook

SGLang itself is never imported from here. Modules that are loaded already are patched at once, the
others right after their import. However often, in whatever order and together with the plugin entry
point: each place is patched exactly once. ``SGLANG_SPECV2=0`` makes all of it do nothing.
"""

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sglang_specv2 import accounting, flags, introspection, live_control, relay, worker_choice
from sglang_specv2.config import plugin_enabled
from sglang_specv2.errors import CompatibilityError
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


class _PatchingLoader(Loader):
    """Runs the module's own loader, then the patches, and leaves no trace in the module's spec."""

    def __init__(self, loader: Loader, patches: Sequence[Patch]) -> None:
        self._loader = loader
        self._patches = patches

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        for patch in self._patches:
            _apply(patch, module)


class _Finder(MetaPathFinder):
    def __init__(self) -> None:
        self._asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patches = [patch for patch in PATCHES if patch.module == fullname]
        if not patches or self._asking:
            return None
        self._asking = True
        try:
            spec = _first_spec(fullname, path, target)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, patches)
        return spec


def _first_spec(
    fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(fullname, path, target)
        if spec is not None:
            return spec
    return None


def _apply(patch: Patch, module: ModuleType) -> None:
    try:
        if not patch.in_place(module):
            _undo[patch] = patch.apply(module)
        failures.pop(patch, None)
    except CompatibilityError as error:
        failures[patch] = str(error)
        logger.error("sglang-specv2 could not patch %s: %s", patch.module, error)


def loaded(name: str) -> ModuleType | None:
    """The module, if it is imported to its end; half-imported ones have nothing to patch yet."""
    module = sys.modules.get(name)
    if module is None or getattr(module.__spec__, "_initializing", False):
        return None
    return module


def installed() -> bool:
    """Whether imports are being watched."""
    return any(isinstance(finder, _Finder) for finder in sys.meta_path)


def install() -> None:
    """Patches what is imported and watches for the rest.

    Raises:
        ConfigError: ``SGLANG_SPECV2`` is neither 0 nor 1.
    """
    if not plugin_enabled():
        return
    if not installed():
        sys.meta_path.insert(0, _Finder())
    for patch in PATCHES:
        module = loaded(patch.module)
        if module is not None:
            _apply(patch, module)


def uninstall() -> None:
    """Takes every patch back and stops watching."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    while _undo:
        _undo.popitem()[1]()
    failures.clear()


install()
