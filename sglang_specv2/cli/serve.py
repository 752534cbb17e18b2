"""``sglang-specv2 serve``: our checks, then SGLang's own launch with the same arguments."""

import argparse
from itertools import pairwise
from typing import Any

from sglang_specv2 import compat, cpu, gpus, hook, plugin
from sglang_specv2.config import SWITCH, plugin_enabled
from sglang_specv2.errors import CompatibilityError, ConfigError

_DRAFT_FLAGS = ("--speculative-draft-model-path", "--speculative-algorithm")
_MODEL_FLAGS = ("--model-path", "--model", "--config")
_PAIR_FLAGS = (
    ("--speculative-algorithm", "EAGLE3"),
    ("--speculative-num-steps", "2"),
    ("--speculative-eagle-topk", "1"),
    ("--speculative-num-draft-tokens", "3"),
)

CPU_HELP = "serve on the CPU engine; without a model, the small bundled pair"


def add_parser(commands: Any) -> None:
    """Adds ``serve``; it leaves ``--help`` to SGLang, whose flags it takes."""
    parser = commands.add_parser(
        "serve",
        help="serve a model; takes the flags of `sglang serve`, and --cpu",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument("--cpu", action="store_true", help=CPU_HELP)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, sglang_argv: list[str]) -> int:
    """Serves until stopped.

    Raises:
        CompatibilityError: this SGLang is not the supported one; lists the differences.
        ConfigError, UnsupportedError: what was asked for cannot be served.
    """
    if not plugin_enabled():
        raise ConfigError(f"{SWITCH}=0: expected 1 or unset; `sglang serve` serves without us")
    compat.require()
    sglang_argv, on_cpu = plan(sglang_argv, cpu_asked=args.cpu)
    if on_cpu:
        cpu.install()
    if {"-h", "--help"}.intersection(sglang_argv):
        print(
            "sglang-specv2 serve [MODEL] [--cpu] [flags of `sglang serve`]\n\n"
            f"  --cpu   {CPU_HELP}\n"
        )
    hook.install()
    _require_patches()
    from sglang.cli.serve import serve

    serve(argparse.Namespace(), sglang_argv)
    return 0


def plan(sglang_argv: list[str], *, cpu_asked: bool) -> tuple[list[str], bool]:
    """Completes SGLang's arguments.

    On the CPU ``--device cpu`` is added. Without a model, on the CPU or where no GPU is found, the
    bundled pair is served on the CPU.

    Args:
        sglang_argv: arguments for SGLang, as given.
        cpu_asked: ``--cpu`` was given.

    Returns:
        The arguments, and whether the CPU engine is needed.

    Raises:
        ConfigError: ``--cpu`` and another device, a draft that nothing would use, or the bundled
            pair is not installed.
    """
    if {"-h", "--help"}.intersection(sglang_argv):
        return sglang_argv, cpu_asked
    device = _value(sglang_argv, "--device")
    if cpu_asked and device not in (None, "cpu"):
        raise ConfigError(f"--cpu and --device {device}: expected one of them")
    draft, algorithm = (_value(sglang_argv, flag) for flag in _DRAFT_FLAGS)
    if draft and algorithm is None and _names_model(sglang_argv) and not _configured(sglang_argv):
        raise ConfigError(
            f"{_DRAFT_FLAGS[0]} {draft}: expected {_DRAFT_FLAGS[1]} EAGLE3 (or EAGLE) beside it, "
            "since SGLang would serve without the draft; give it"
        )
    on_cpu = cpu_asked or device == "cpu"
    if not _names_model(sglang_argv):
        on_cpu = on_cpu or (device is None and not _has_gpu())
        if on_cpu:
            sglang_argv = [*_bundled_pair(), *sglang_argv]
    if on_cpu and device is None:
        sglang_argv = [*sglang_argv, "--device", "cpu"]
    return sglang_argv, on_cpu


def _require_patches() -> None:
    import sglang.srt.server_args
    import sglang.srt.speculative.spec_info  # noqa: F401

    problems = plugin.status().problems
    if problems:
        raise CompatibilityError(problems)


def _bundled_pair() -> list[str]:
    target, draft = cpu.bundled_pair()
    flags = [part for flag in _PAIR_FLAGS for part in flag]
    return ["--model-path", str(target), "--speculative-draft-model-path", str(draft), *flags]


def _names_model(argv: list[str]) -> bool:
    positional = bool(argv) and not argv[0].startswith("-")
    return positional or any(_value(argv, flag) is not None for flag in _MODEL_FLAGS)


def _configured(argv: list[str]) -> bool:
    """Whether a file of SGLang's may say what the command line does not."""
    return _value(argv, "--config") is not None


def _value(argv: list[str], flag: str) -> str | None:
    """The last value given to a flag, as ``--flag value`` or ``--flag=value``."""
    found = None
    for argument, following in pairwise([*argv, ""]):
        if argument == flag:
            found = following
        elif argument.startswith(f"{flag}="):
            found = argument.partition("=")[2]
    return found


def _has_gpu() -> bool:
    try:
        return bool(gpus.find())
    except gpus.NoGpuError:
        return False
