"""``sglang-specv2 calibrate``: time both modes of a model on this machine, into a file.

A server with the same flags then starts without measuring: ``--speculative-calibration FILE``.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from sglang_specv2 import compat, cpu, gpus, hook
from sglang_specv2.cli import serve
from sglang_specv2.errors import ConfigError

_OUT, _FROM = "SGLANG_SPECV2_CALIBRATION_OUT", "SGLANG_SPECV2_CALIBRATION"


def add_parser(commands: Any) -> None:
    """Adds ``calibrate``; what it does not know are flags of ``sglang serve``."""
    parser = commands.add_parser(
        "calibrate",
        help="time both modes into a file; takes the flags of `sglang serve`, --cpu and --out",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("calibration.json"),
        metavar="FILE",
        help="file to write (default: %(default)s)",
    )
    parser.add_argument("--cpu", action="store_true", help="measure on the CPU engine")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, sglang_argv: list[str]) -> int:
    """Starts an engine with these flags, which measures at its start, and ends it.

    Raises:
        CompatibilityError: this SGLang is not the supported one.
        ConfigError: the flags leave nothing to measure, or the file cannot be written.
    """
    compat.require()
    if args.out.is_dir():
        raise ConfigError(f"--out {args.out}: expected the name of a file, got a folder")
    if not args.out.parent.is_dir():
        raise ConfigError(
            f"--out {args.out}: expected a file in a folder that is there, got no {args.out.parent}"
        )
    given = {argument.partition("=")[0] for argument in sglang_argv}
    if "--speculative-calibration" in given:
        raise ConfigError(
            "calibrate: --speculative-calibration FILE: expected flags to measure "
            "with, got a file of step times; leave it out"
        )
    if "--speculative-dynamic" in given:
        raise ConfigError(
            "calibrate: --speculative-dynamic: expected none, since step times are for policy "
            "auto; leave it out"
        )
    os.environ.pop(_FROM, None)
    sglang_argv, on_cpu = serve.plan(sglang_argv, cpu_asked=args.cpu)
    if on_cpu:
        cpu.install()
    hook.install()
    written_ns = _written_ns(args.out)
    os.environ[_OUT] = str(args.out.absolute())
    _start_and_stop([*sglang_argv, "--speculative-dynamic", "auto"])
    if _written_ns(args.out) == written_ns:
        raise ConfigError(
            f"calibrate: expected a server that measures, got one that wrote no {args.out}; "
            "`sglang-specv2 doctor` with the same flags says why"
        )
    print("\n".join(_summary(json.loads(args.out.read_text(encoding="utf-8")))))
    print(f"\nwritten to {args.out}; serve with --speculative-calibration {args.out}")
    return 0


def _start_and_stop(sglang_argv: list[str]) -> None:
    import sglang
    from sglang.srt.server_args import prepare_server_args

    server_args = prepare_server_args(sglang_argv)
    engine = sglang.Engine(server_args=server_args)
    engine.shutdown()


def _written_ns(path: Path) -> int | None:
    return path.stat().st_mtime_ns if path.exists() else None


def _summary(content: dict[str, Any]) -> list[str]:
    """A table of step times, with what a speculative step has to accept to pay."""
    rows = ["requests  tokens held  plain ms  speculative ms  pays from accept length"]
    for point in content["step_times"]["points"]:
        times = {int(steps): time for steps, time in point["step_s"].items()}
        plain, speculative = times[0], times[max(times)]
        rows.append(
            f"{point['batch_size']:>8}  {point['context_tokens']:>11}  {1e3 * plain:>8.2f}  "
            f"{1e3 * speculative:>14.2f}  {speculative / plain:>23.2f}"
        )
    held_back = filter(None, map(gpus.held_back, content["provenance"]["gpus"]))
    return rows + [f"careful: {words}; measure again when it is not" for words in held_back]
