"""tools/environment.py, without installing anything."""

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "tools" / "environment.py"


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """The tool with an empty cache and requirements of its own; ``made`` counts its installs."""
    spec = importlib.util.spec_from_file_location("environment_tool", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    requirements = tmp_path / "requirements"
    requirements.mkdir()
    for files in module.FILES.values():
        for file in files:
            (requirements / file).write_text("a==1\n")
    module.REQUIREMENTS = requirements
    module.made = []

    def make(kind, base, folder, python):
        python.parent.mkdir(parents=True)
        python.touch()
        module.made.append(folder)

    module.really_make, module.make = module.make, make
    return module


def test_it_is_made_once(tool):
    assert tool.ensure("light") == tool.ensure("light")
    assert len(tool.made) == 1


def test_a_changed_pin_another_kind_and_another_python_make_a_new_one(tool, monkeypatch):
    tool.ensure("light")
    tool.ensure("full")
    (tool.REQUIREMENTS / "cpu.txt").write_text("a==2\n")
    tool.ensure("light")
    monkeypatch.setattr(tool, "version_of", lambda python: "3.12")
    tool.ensure("light")
    assert len(set(tool.made)) == 4


def test_what_an_interrupted_run_left_is_not_used(tool):
    folder = tool.ensure("light").parents[1]
    (folder / "complete").unlink()
    (folder / "half").touch()

    tool.ensure("light")

    assert len(tool.made) == 2
    assert not (folder / "half").exists()


def test_a_failed_run_leaves_nothing(tool):
    def fail(kind, base, folder, python):
        folder.mkdir(parents=True)
        raise tool.SetupError("no network")

    tool.make = fail
    with pytest.raises(tool.SetupError, match="no network"):
        tool.ensure("light")
    assert list(tool.cache().glob("light-*/*")) == []


def test_it_takes_a_supported_python_from_the_path(tool, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3.14")
    monkeypatch.setattr(tool.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(tool, "version_of", lambda python: python.removeprefix("/usr/bin/python"))
    assert tool.base_python() == "/usr/bin/python3.11"

    monkeypatch.setattr(tool.shutil, "which", lambda name: None)
    with pytest.raises(tool.SetupError, match=r"expected Python 3\.10, 3\.11 or 3\.12"):
        tool.base_python()


@pytest.mark.parametrize(
    ("options", "gpu", "kind"),
    [
        ([], False, "light"),
        ([], True, "full"),
        (["--light"], True, "light"),
        (["--full"], False, "full"),
    ],
)
def test_the_kind_follows_the_gpu_unless_it_is_chosen(tool, capsys, options, gpu, kind):
    tool.gpu_found = lambda: gpu
    tool.ensure_metadata = lambda python: None
    assert tool.main([*options, "--print-python"]) == 0
    assert f"/{kind}-py3" in capsys.readouterr().out


def test_a_serving_environment_goes_where_it_is_told(tool, tmp_path, capsys):
    assert tool.main(["--serving", str(tmp_path / "there")]) == 0

    assert tool.made == [tmp_path / "there"]
    assert not tool.cache().exists()
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("kind", "installed"),
    [
        ("light", ["torch -r cpu.txt -r dev.txt", "--no-deps -r cpu-no-deps.txt"]),
        ("serving", ["torch -r cpu.txt", "--no-deps -r cpu-no-deps.txt"]),
        ("full", ["-r gpu.txt -r dev.txt"]),
    ],
)
def test_what_each_kind_is_made_of(tool, tmp_path, kind, installed):
    calls = []
    tool.run = lambda command, reason: None
    tool.install_cpu_torch = lambda python: "torch"
    tool.pip = lambda python, *arguments: calls.append(
        " ".join(Path(argument).name for argument in arguments)
    )
    tool.really_make(kind, "python3", tmp_path, tmp_path / "bin" / "python")

    assert calls == installed
