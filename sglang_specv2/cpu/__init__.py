"""SGLang's scheduler, HTTP server, Engine and EAGLEWorkerV2 on a plain CPU, overlap loop included.

For tests, for a demo and for reading along in a debugger; it is there only where it was asked for.
CPU streams and events do nothing, so what runs here proves order and relay, not concurrency.

Three ways to ask, which all end in :func:`install`:

- ``sglang-specv2 serve --cpu``;
- ``SGLANG_SPECV2_CPU=1`` with the folder ``sglang_specv2/cpu/site`` on ``PYTHONPATH``, for any
  command of SGLang;
- ``sglang_specv2.cpu.install()`` above ``import sglang`` in a program.

SGLang imports triton in its first lines, in the launcher and in every process that it spawns, long
before it loads plugins. So the folder ``site`` holds a ``sitecustomize`` module, which Python runs
first in each process that inherits the environment of :func:`environment`.
"""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sglang_specv2.errors import ConfigError

SWITCH = "SGLANG_SPECV2_CPU"
"""1: install; 0: do not, not even for ``--device cpu``; unset: as the command line says."""

SITE = Path(__file__).resolve().parent / "site"
MODELS = Path(__file__).resolve().parents[1] / "models"

DEFAULTS = {
    # Layers of the size that suits a CPU lose more to a thread pool than they gain.
    "OMP_NUM_THREADS": "1",
    # Two ranks talk over gloo; where NCCL is installed, SGLang would try it without a GPU.
    "SGLANG_NCCL_SO_PATH": os.devnull,
    # SGLang compiles small helpers with torch.compile: minutes on a machine without a compiler.
    "TORCHDYNAMO_DISABLE": "1",
}
"""Variables that every process of the engine gets unless the user has set them."""

_RESTARTED = "SGLANG_SPECV2_CPU_RESTARTED"

_installed = False


def installed() -> bool:
    """Whether this process runs the CPU engine."""
    return _installed


def install() -> None:
    """Makes SGLang run on this CPU, here and in every process started from here. Idempotent.

    Raises:
        ConfigError: SGLang is imported already, too late to stand in for what it imports.
    """
    global _installed
    if _installed:
        return
    if "sglang" in sys.modules:
        raise ConfigError(
            "the CPU engine has to be installed before SGLang is imported. Use `sglang-specv2 "
            "serve --cpu`, or call sglang_specv2.cpu.install() above `import sglang`, or start "
            f"Python with {SWITCH}=1 and PYTHONPATH={SITE}"
        )
    from sglang_specv2.cpu import patches, standins

    os.environ.update(environment(os.environ))
    standins.install()
    patches.install()
    _installed = True


def maybe_install() -> bool:
    """What the plugin calls in every process of SGLang: true where the CPU engine is installed.

    A plugin is too late to install the engine, but not to notice that it was asked for: a launcher
    that was given ``--device cpu``, or ``SGLANG_SPECV2_CPU=1`` without the folder ``site``, is
    started again, with the same arguments and the environment that the engine needs.

    Raises:
        ConfigError: the engine was asked for and this process cannot be started again.
    """
    if _installed or not _asked(sys.argv, os.environ):
        return _installed
    restartable = (
        multiprocessing.parent_process() is None
        and _is_launcher(sys.argv[0])
        and _RESTARTED not in os.environ
    )
    if not restartable:
        raise ConfigError(
            f"the CPU engine was asked for, but Python did not run {SITE / 'sitecustomize.py'} "
            f"before it imported SGLang. Use `sglang-specv2 serve --cpu`, or put {SITE} on "
            "PYTHONPATH and start Python without -I, -E and -S"
        )
    env = {**environment(os.environ), _RESTARTED: "1"}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], env)


def _asked(argv: Sequence[str], environ: Mapping[str, str]) -> bool:
    switch = environ.get(SWITCH, "")
    if switch in ("0", "1"):
        return switch == "1"
    following = zip(argv, [*argv[1:], ""], strict=True)
    return any(
        argument == "--device=cpu" or (argument == "--device" and value == "cpu")
        for argument, value in following
    )


def _is_launcher(program: str) -> bool:
    path = Path(program)
    return path.name == "sglang" or path.parts[-2:] in (
        ("sglang", "launch_server.py"),
        ("sglang", "__main__.py"),
        ("cli", "main.py"),
    )


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """A copy of ``base`` in which a Python process, and all that it starts, runs the CPU engine."""
    env = {**DEFAULTS, **base, SWITCH: "1", "SGLANG_USE_CPU_ENGINE": "1"}
    search = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if str(SITE) not in search:
        env["PYTHONPATH"] = os.pathsep.join([str(SITE), *search])
    return env


def bundled_pair() -> tuple[Path, Path]:
    """The folders of the trained target and draft that ship with this package.

    Raises:
        ConfigError: this installation lacks them.
    """
    pair = MODELS / "tiny-target", MODELS / "tiny-draft"
    for folder in pair:
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"the bundled models are not installed: expected {folder}/config.json. Install "
                "sglang-specv2 with its package data, or make them with tools/train_tiny_pair.py"
            )
    return pair
