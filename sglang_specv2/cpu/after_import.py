"""Patches of the CPU engine, each on a module of SGLang right after its first import."""

import sys

from sglang_specv2.import_watch import ImportWatch, Patch

_patches: dict[str, list[Patch]] = {}
_watch = ImportWatch(lambda name: _patches.get(name, ()))


def after_import(name: str, patch: Patch) -> None:
    """Calls ``patch(module)`` when ``name`` has been imported, at once if it is imported now."""
    if name in sys.modules:
        patch(sys.modules[name])
        return
    if _watch not in sys.meta_path:
        sys.meta_path.insert(0, _watch)
    _patches.setdefault(name, []).append(patch)
