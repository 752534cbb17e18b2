"""What the stand-ins let pass and what they refuse."""

import importlib
import sys

import pytest

from sglang_specv2.cpu import after_import, standins


@pytest.fixture
def without_triton(monkeypatch):
    """Serves every stand-in, as in an environment that has none of the packages."""
    finder = standins.StandInFinder()
    finder.packages = {name.partition(".")[0] for name in standins.MODULES}
    for name in [name for name in sys.modules if name.partition(".")[0] in finder.packages]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in finder.packages]:
        del sys.modules[name]


def test_a_kernel_can_be_defined_and_names_itself_when_launched(without_triton):
    triton = importlib.import_module("triton")
    tl = importlib.import_module("triton.language")

    @triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4)], key=["n"])
    @triton.jit(do_not_specialize=["n"])
    def add_one(pointer, n, BLOCK: tl.constexpr):
        tl.store(pointer, tl.load(pointer) + 1)

    with pytest.raises(standins.StandInError, match=r"triton\.jit kernel .*add_one was used"):
        add_one[(1,)](None, 3)


def test_any_submodule_and_name_can_be_imported_but_not_called(without_triton):
    transforms = importlib.import_module("torchvision.transforms.v2")

    class Resize(transforms.Resize):
        pass

    with pytest.raises(standins.StandInError, match=r"torchvision\.transforms\.v2\.Resize"):
        transforms.Resize(3)
    assert Resize.__mro__ == (Resize, object)


def test_the_operators_of_the_eagle_path_are_ours(without_triton):
    from sglang_specv2.cpu import kernels

    sgl_kernel = importlib.import_module("sgl_kernel")
    assert sgl_kernel.verify_tree_greedy_cpu is kernels.verify_chain_greedy


@pytest.mark.parametrize("number", range(1, 70))
def test_integer_helpers(without_triton, number):
    triton = importlib.import_module("triton")
    power = triton.next_power_of_2(number)
    assert power >= number > power / 2
    assert power & (power - 1) == 0
    assert (triton.cdiv(number, 7) - 1) * 7 < number <= triton.cdiv(number, 7) * 7


def test_packages_that_are_there_are_not_replaced():
    finder = standins.StandInFinder()
    finder.packages = {"sgl_kernel"}
    assert finder.find_spec("torch", None) is None
    assert finder.find_spec("sgl_kernel.flash_attn", None) is not None


def test_a_module_is_patched_once_right_after_its_import(monkeypatch, tmp_path):
    (tmp_path / "patched_here.py").write_text("value = 1\nbefore = value\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(after_import, "_patches", {})
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    seen = []

    def patch(module):
        seen.append(module.value)
        module.value = 2

    after_import.after_import("patched_here", patch)
    module = importlib.import_module("patched_here")
    after_import.after_import("patched_here", lambda module: seen.append(module.value))

    assert (module.before, module.value) == (1, 2)
    assert seen == [1, 2]
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    del sys.modules["patched_here"]
