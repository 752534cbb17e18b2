"""The entry points by which SGLang finds this package, and what came of it.

SGLang loads the group ``sglang.srt.plugins`` in the launcher and in every scheduler process, and
swallows what a plugin raises. So nothing here may be the only place that notices a fault: the
worker refuses at construction, and :func:`status` tells ``doctor`` and ``serve``.

Patches are our own (:mod:`sglang_specv2.hook`) rather than hooks of SGLang's HookRegistry: the
registry applies hooks only once per target and process, at the end of ``load_plugins``, and cannot
take them back, while the same patch must be reachable by two routes and be undoable. A hook that
another plugin registers on the same methods wraps ours.
"""

import logging
from dataclasses import dataclass

from sglang_specv2 import compat, cpu, hook
from sglang_specv2.config import plugin_enabled

logger = logging.getLogger(__name__)


def register() -> None:
    """Entry point of the group ``sglang.srt.plugins``; any number of calls patch once.

    Raises:
        ConfigError: ``SGLANG_SPECV2`` is neither 0 nor 1.
    """
    if not plugin_enabled():
        logger.info("sglang-specv2 leaves SGLang untouched (SGLANG_SPECV2=0).")
        return
    hook.install()
    for difference in compat.check():
        logger.error("sglang-specv2: %s", difference)
    cpu.maybe_install()


def watch_imports() -> None:
    """Entry point of the group ``sglang.srt.platforms``: declines, and watches SGLang's imports.

    SGLang asks this group while it is being imported, ``sglang serve --help`` included, which
    builds its parser without loading plugins. Returning None means "not this hardware".
    """
    hook.install()


@dataclass(frozen=True)
class PatchState:
    """One patch in this process: what for, how it stands in words, and whether that is right."""

    purpose: str
    state: str
    in_order: bool


@dataclass(frozen=True)
class Status:
    """What is patched in this process.

    Attributes:
        enabled: false under ``SGLANG_SPECV2=0``.
        patches: every patch.
        differences: names of SGLang that are not as expected.
    """

    enabled: bool
    patches: tuple[PatchState, ...] = ()
    differences: tuple[str, ...] = ()

    @property
    def problems(self) -> list[str]:
        """What keeps this process from serving as asked; empty when all is well."""
        wrong = [patch for patch in self.patches if not patch.in_order]
        return [*self.differences, *(f"{patch.purpose}: {patch.state}" for patch in wrong)]


def status() -> Status:
    """Looks at SGLang's modules as they are now, without importing any."""
    if not plugin_enabled():
        return Status(enabled=False)
    return Status(
        enabled=True,
        patches=tuple(_state(patch) for patch in hook.PATCHES),
        differences=tuple(compat.check()),
    )


def _state(patch: hook.Patch) -> PatchState:
    module = hook.loaded(patch.module)
    if patch in hook.failures:
        return PatchState(patch.purpose, f"failed: {hook.failures[patch]}", False)
    if module is not None and patch.in_place(module):
        return PatchState(patch.purpose, "in place", True)
    if module is None and hook.installed():
        return PatchState(patch.purpose, f"waits for the import of {patch.module}", True)
    return PatchState(patch.purpose, f"missing in {patch.module}", False)
