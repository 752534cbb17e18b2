"""Runs functions on a module right after its first import.

SGLang binds names with ``from x import y``, so a replacement has to be in place before the next
module imports from ``x``.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]
"""Takes the module."""


class ImportWatch(MetaPathFinder):
    """Finds a module with the other finders and wraps its loader; stands first on sys.meta_path.

    Args:
        patches_of: what to run on a module, by its name; nothing for most.
    """

    def __init__(self, patches_of: Callable[[str], Sequence[Patch]]) -> None:
        self._patches_of = patches_of
        self._asking = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        patches = () if self._asking else self._patches_of(fullname)
        if not patches:
            return None
        self._asking = True
        try:
            specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader = _PatchingLoader(spec.loader, patches)
        return spec


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
            patch(module)
