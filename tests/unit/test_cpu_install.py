"""How the CPU engine gets into a process, and how it stays out of the others."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sglang_specv2 import cpu
from sglang_specv2.errors import ConfigError

ROOT = Path(cpu.__file__).resolve().parents[2]
PROBE = "import sys; from sglang_specv2 import cpu; print(cpu.installed(), 'torch' in sys.modules)"


def run_python(*arguments, cwd=None, **env):
    """Standard output of a Python with ``env`` and no engine of ours in its environment."""
    inherited = {k: v for k, v in os.environ.items() if "SPECV2" not in k and k != "PYTHONPATH"}
    result = subprocess.run(
        [sys.executable, *arguments],
        env=inherited | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.stdout.strip() + result.stderr.strip()


@pytest.fixture
def launched(monkeypatch):
    """Stands for a launcher of SGLang that has no engine yet; records what would replace it."""
    replaced = []
    monkeypatch.setattr(cpu, "_installed", False)
    monkeypatch.setattr(sys, "argv", ["/env/sglang/launch_server.py", "--device", "cpu"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "sglang.launch_server", "--device=cpu"])
    monkeypatch.setattr(os, "execve", lambda *call: replaced.append(call))
    for name in (cpu.SWITCH, "SGLANG_SPECV2_CPU_RESTARTED"):
        monkeypatch.delenv(name, raising=False)
    return replaced


def test_the_environment_installs_it_before_the_first_line():
    env = cpu.environment({"PYTHONPATH": str(ROOT)})
    assert run_python("-c", PROBE, **env) == "True False"


def test_the_folder_alone_installs_nothing():
    assert run_python("-c", PROBE, PYTHONPATH=f"{cpu.SITE}{os.pathsep}{ROOT}") == "False False"


def test_it_needs_no_path_to_the_package(tmp_path):
    env = cpu.environment({})
    assert run_python("-c", PROBE, cwd=tmp_path, **env) == "True False"


def test_a_sitecustomize_of_the_environment_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    env = cpu.environment({"PYTHONPATH": str(tmp_path)})
    assert run_python("-c", "", **env) == "theirs"


def test_what_the_user_set_stays():
    env = cpu.environment({"OMP_NUM_THREADS": "4", "PYTHONPATH": "/theirs", "OTHER": "x"})
    assert env["OMP_NUM_THREADS"] == "4"
    assert env["OTHER"] == "x"
    assert env["PYTHONPATH"] == f"{cpu.SITE}{os.pathsep}/theirs"
    assert cpu.environment(env) == env


def test_after_sglang_it_is_too_late(launched, monkeypatch):
    monkeypatch.setitem(sys.modules, "sglang", sys)
    with pytest.raises(ConfigError, match=r"before SGLang is imported.*serve --cpu"):
        cpu.install()


def test_a_launcher_told_device_cpu_is_started_again(launched):
    cpu.maybe_install()

    (program, arguments, env) = launched[0]
    assert program == sys.executable
    assert arguments == [sys.executable, "-m", "sglang.launch_server", "--device=cpu"]
    assert env[cpu.SWITCH] == "1"
    assert str(cpu.SITE) in env["PYTHONPATH"]


@pytest.mark.parametrize("arguments", [["--device", "cuda"], ["--model", "cpu"], []])
def test_other_launchers_are_left_alone(launched, monkeypatch, arguments):
    monkeypatch.setattr(sys, "argv", ["/env/sglang/launch_server.py", *arguments])
    assert cpu.maybe_install() is False
    assert launched == []


def test_the_switch_wins_over_the_device(launched, monkeypatch):
    monkeypatch.setenv(cpu.SWITCH, "0")
    assert cpu.maybe_install() is False
    assert launched == []


@pytest.mark.parametrize("obstacle", ["a program of the user's", "a second start"])
def test_what_cannot_be_started_again_is_told_how(launched, monkeypatch, obstacle):
    if obstacle == "a second start":
        monkeypatch.setenv("SGLANG_SPECV2_CPU_RESTARTED", "1")
    else:
        monkeypatch.setattr(sys, "argv", ["train.py", "--device", "cpu"])
    with pytest.raises(ConfigError, match=r"sitecustomize.py.*serve --cpu"):
        cpu.maybe_install()
    assert launched == []


def test_missing_models_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu, "MODELS", tmp_path)
    with pytest.raises(ConfigError, match=r"tiny-target/config\.json"):
        cpu.bundled_pair()
