"""The import hook on modules made for the purpose; see test_plugin_stock for SGLang's own."""

import functools
import importlib
import logging
import subprocess
import sys

import pytest
from stock_sglang import ROOT

from sglang_specv2 import hook

NAME = "upstream_for_hook"
SOURCE = """
class Thing:
    def double(self, x):
        return 2 * x

    @staticmethod
    def name(x):
        return f"thing {x}"
"""


def add_one(original, self, x):
    return original(self, x) + 1


def in_brackets(original, x):
    return f"[{original(x)}]"


@pytest.fixture(autouse=True)
def upstream(tmp_path, monkeypatch):
    """A module that is not imported yet, patched in two places; and the hook switched off."""
    hook.uninstall()
    (tmp_path / f"{NAME}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.delenv("SGLANG_SPECV2", raising=False)
    monkeypatch.setattr(
        hook,
        "PATCHES",
        (
            hook.method_patch(f"{NAME}.Thing.double", "doubling", add_one),
            hook.method_patch(f"{NAME}.Thing.name", "names", in_brackets),
        ),
    )
    yield
    hook.uninstall()
    sys.modules.pop(NAME, None)
    monkeypatch.undo()
    hook.install()


def imported():
    return importlib.import_module(NAME)


def patched(module):
    return module.Thing().double(10), module.Thing.name(1)


ONCE, NEVER = (21, "[thing 1]"), (20, "thing 1")


def test_patches_after_import():
    hook.install()
    assert patched(imported()) == ONCE


def test_patches_at_once_what_is_imported():
    module = imported()
    assert patched(module) == NEVER
    hook.install()
    assert patched(module) == ONCE


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_any_number_of_installs_patches_once(before, after):
    for _ in range(before):
        hook.install()
    module = imported()
    for _ in range(after):
        hook.install()
    assert patched(module) == (ONCE if before + after else NEVER)


def test_one_finder_however_often():
    hook.install()
    hook.install()
    assert hook.installed()
    assert sys.meta_path.count(hook._watch) == 1


def test_static_methods_stay_static():
    hook.install()
    assert isinstance(vars(imported().Thing)["name"], staticmethod)


def test_module_shows_its_own_loader():
    plain = imported().__spec__.loader
    del sys.modules[NAME]
    hook.install()
    module = imported()
    assert type(module.__spec__.loader) is type(plain)
    assert module.__loader__ is module.__spec__.loader


def test_uninstall_undoes_everything():
    module = imported()
    before = dict(vars(module.Thing))
    hook.install()
    hook.uninstall()
    assert not hook.installed()
    assert dict(vars(module.Thing)) == before
    del sys.modules[NAME]
    assert patched(imported()) == NEVER


def test_install_after_uninstall():
    module = imported()
    for _ in range(3):
        hook.install()
        assert patched(module) == ONCE
        hook.uninstall()
        assert patched(module) == NEVER


def wrapped_by_others(cls):
    original = cls.double

    @functools.wraps(original)
    def double(self, x):
        return 1000 + original(self, x)

    cls.double = double


def test_wrapper_of_others_around_ours_is_recognised_and_stays():
    hook.install()
    module = imported()
    wrapped_by_others(module.Thing)
    hook.install()
    assert module.Thing().double(10) == 1021
    hook.uninstall()
    assert module.Thing().double(10) == 1020
    hook.install()
    assert module.Thing().double(10) == 1021


def test_wrapper_of_others_inside_ours_stays():
    module = imported()
    wrapped_by_others(module.Thing)
    hook.install()
    assert module.Thing().double(10) == 1021
    hook.uninstall()
    assert module.Thing().double(10) == 1020


def test_switched_off(monkeypatch):
    monkeypatch.setenv("SGLANG_SPECV2", "0")
    hook.install()
    assert not hook.installed()
    assert patched(imported()) == NEVER


def test_half_imported_module_is_patched_by_the_next_install(tmp_path):
    (tmp_path / f"{NAME}.py").write_text(
        "from sglang_specv2 import hook\nhook.install()\n" + SOURCE, encoding="utf-8"
    )
    importlib.invalidate_caches()
    module = imported()
    assert not hook.failures
    hook.install()
    assert patched(module) == ONCE


@pytest.mark.parametrize("source", ["", "class Thing:\n    pass\n"], ids=["class", "method"])
def test_missing_place_is_kept_as_a_failure_and_the_import_succeeds(tmp_path, caplog, source):
    (tmp_path / f"{NAME}.py").write_text(source, encoding="utf-8")
    importlib.invalidate_caches()
    hook.install()
    with caplog.at_level(logging.ERROR):
        imported()
    assert [patch.purpose for patch in hook.failures] == ["doubling", "names"]
    assert all("is not defined" in why for why in hook.failures.values())
    assert f"could not patch {NAME}" in caplog.text


def test_absent_module_stays_absent():
    hook.install()
    with pytest.raises(ModuleNotFoundError, match="upstream_that_is_not_there"):
        importlib.import_module("upstream_that_is_not_there")


def test_another_finder_that_does_the_same_does_not_recurse():
    class Other:
        @staticmethod
        def find_spec(fullname, path, target=None):
            for finder in sys.meta_path:
                spec = None if finder is other else finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
            return None

    other = Other()
    hook.install()
    sys.meta_path.insert(1, other)
    try:
        assert patched(imported()) == ONCE
    finally:
        sys.meta_path.remove(other)


def test_import_installs_and_imports_neither_sglang_nor_torch():
    script = (
        "import sys, sglang_specv2.hook as hook\n"
        "assert hook.installed()\n"
        "print(*sorted({'sglang', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == ""
