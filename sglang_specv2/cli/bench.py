"""``sglang-specv2 bench``: compares servers with and without speculation on this machine."""

from __future__ import annotations

import argparse
import signal
import time
from dataclasses import fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sglang_specv2 import gpus
from sglang_specv2.benchmark import pairs
from sglang_specv2.benchmark.arms import ARMS, DEFAULT_ARMS, RECOVERY_ARMS
from sglang_specv2.benchmark.load import TIMELINES
from sglang_specv2.benchmark.results import Results
from sglang_specv2.benchmark.settings import CLIENTS, Settings
from sglang_specv2.benchmark.workloads import WORKLOADS
from sglang_specv2.errors import ConfigError

_SMOKE = Settings(
    levels=(1, 2, 8),
    rounds=1,
    output_tokens=48,
    prompt_tokens=32,
    threshold=4,
    tier_from=5,
    timeline_s=5.0,
    side_by_side=True,
    recovery_plain_tokens=(48,),
    recovery_arms=("stock", "threshold", "adaptive-cold"),
    recovery_requests=6,
    recovery_matter=2,
    start_timeout_s=180.0,
    round_timeout_s=60.0,
    look_period_s=0.25,
    cpu=True,
)
_QUICK = Settings(levels=(1, 4, 16, 64), rounds=3, timeline_s=20.0)
_FULL = Settings(
    levels=(1, 2, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100, 128),
    rounds=5,
    recovery_plain_tokens=(256, 1024, 4096),
)
SIZES = {"smoke": _SMOKE, "quick": _QUICK, "full": _FULL}
_NO_TIMELINE = "none"


def add_parser(commands: Any) -> None:
    """Adds ``bench``."""
    parser = commands.add_parser(
        "bench",
        help="compare servers that speculate always, never and by batch size",
        description="Starts a server for each arm, loads it, and writes one result folder with "
        "raw lines, a report and figures. The same command with the same --out continues. Flags "
        "of `sglang serve` for every server follow after `--`.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--size",
        choices=SIZES,
        default=None,
        help="preset that the other options change "
        "(default: quick on a GPU; smoke, on the CPU engine, without one)",
    )
    add("--out", type=Path, help="result folder (default: benchmark-DATE-TIME)")
    add(
        "--arms",
        nargs="*",
        metavar="ARM",
        help=f"of {', '.join(ARMS)} "
        f"(default: {' '.join(DEFAULT_ARMS)}, threshold only with --threshold)",
    )
    add("--levels", nargs="*", type=int, metavar="C", help="clients of the closed loop")
    add("--rates", nargs="*", type=float, metavar="R", help="Poisson arrivals, requests a second")
    add("--rounds", type=int, help="rounds of each level (default: by size)")
    add("--workload", choices=WORKLOADS, help="kind of prompt (default: random)")
    add("--output-tokens", type=int, metavar="N", help="of each answer")
    add("--prompt-tokens", type=int, metavar="N", help="of random prompts")
    add(
        "--natural",
        action="store_true",
        default=None,
        help="answers end where the model ends "
        "them, for acceptance; otherwise all have the same length, for speed",
    )
    add("--requests-per-client", type=int, metavar="N", help="of the closed loop in a round")
    add("--poisson-s", type=float, metavar="S", help="for how long requests arrive in a round")
    add("--threshold", type=int, metavar="N", help="of the arm threshold")
    add(
        "--tier-from",
        type=int,
        metavar="C",
        help="batch size from which the adaptive arms are in their zero-step tier (default: 2)",
    )
    add("--model", help="target; with --draft")
    add("--draft", help="EAGLE-3 draft of --model")
    add("--shape", choices=pairs.SHAPES, help="serve this shape with dummy weights")
    add(
        "--simulate-accept-len",
        dest="simulate_accept_length",
        type=float,
        metavar="TOKENS",
        help="tokens per verify that SGLang pretends",
    )
    add("--attention-backend", help="of every server (default: SGLang's choice)")
    add("--cpu", action="store_true", default=None, help="the CPU engine; its speed means nothing")
    add(
        "--side-by-side",
        action=argparse.BooleanOptionalAction,
        help="all servers up at once, loaded in turn: better ratios in less time, where the memory "
        "suffices",
    )
    add(
        "--client",
        choices=CLIENTS,
        help="who sends the load: SGLang's bench_serving, or ours "
        "(default: bench_serving where it can be imported)",
    )
    add(
        "--timeline",
        dest="timelines",
        nargs="+",
        choices=[*TIMELINES, _NO_TIMELINE],
        help="clients that come and go: a ramp to the highest level and back, a square wave "
        "between a 32nd and half of it (default: ramp)",
    )
    add("--timeline-s", type=float, metavar="S", help="seconds of each")
    add("--timeline-rounds", type=int, metavar="N", help="rounds of each (default: 1)")
    add(
        "--recovery",
        dest="recovery_plain_tokens",
        nargs="*",
        type=int,
        metavar="TOKENS",
        help="measure acceptance after this many tokens without speculation; with no number, not",
    )
    add(
        "--recovery-arms",
        nargs="*",
        metavar="ARM",
        help=f"on which that is measured (default: {' '.join(RECOVERY_ARMS)})",
    )
    add("--recovery-requests", type=int, metavar="N", help="for each arm and length")
    add("--recovery-matter", type=int, metavar="N", help="of them, at once")
    add(
        "--time-limit",
        dest="time_limit_s",
        type=float,
        metavar="S",
        help="leave out, and name, what does not fit",
    )
    add(
        "--start-timeout",
        dest="start_timeout_s",
        type=float,
        metavar="S",
        help="seconds a server may take to be healthy",
    )
    add(
        "--round-timeout",
        dest="round_timeout_s",
        type=float,
        metavar="S",
        help="seconds a round may take before its server counts as hanging",
    )
    add("--seed", type=int, help="of prompts, arrivals and intervals")
    add("--note", help="words for the report, such as the machine's name")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Measures, and writes the report also after an interrupt.

    Returns:
        0, 1 when an arm failed, or 130 after an interrupt.

    Raises:
        ConfigError, ResultError: what was asked for cannot be measured.
    """
    begun_s = time.monotonic()
    _interruptible()
    settings = settings_of(args, rest)
    from sglang_specv2.benchmark.session import Session

    folder = args.out or Path(f"benchmark-{datetime.now():%Y%m%d-%H%M%S}")
    Results(folder).require_ours()
    pair = pairs.choose(args.shape, args.model, args.draft, Results(folder).models)
    return Session(settings, pair, folder, note=args.note, begun_s=begun_s).run()


def settings_of(args: argparse.Namespace, rest: list[str]) -> Settings:
    """The preset with what was given on top.

    Raises:
        ConfigError: an unknown option, or a value that cannot be right.
    """
    on_cpu = bool(args.cpu) or args.size == "smoke" or (args.size is None and not _has_gpu())
    preset = SIZES[args.size or ("smoke" if on_cpu else "quick")]
    names = {field.name for field in fields(Settings)}
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(args).items()
        if name in names and value is not None
    }
    if given.get("timelines") == (_NO_TIMELINE,):
        given["timelines"] = ()
    if "arms" not in given and given.get("threshold", preset.threshold) is None:
        given["arms"] = tuple(arm for arm in DEFAULT_ARMS if arm != "threshold")
    options: dict[str, Any] = {**given, "cpu": on_cpu, "server_flags": tuple(_server_flags(rest))}
    return replace(preset, **options)


def _server_flags(rest: list[str]) -> list[str]:
    """What follows ``--``."""
    if rest and rest[0] != "--":
        raise ConfigError(
            f"bench does not know {rest[0]}; flags of the servers go after `--`: "
            f"sglang-specv2 bench … -- {rest[0]} …"
        )
    return rest[1:]


def _has_gpu() -> bool:
    try:
        return bool(gpus.find())
    except gpus.NoGpuError:
        return False


def _interruptible() -> None:
    """A shell ignores SIGINT for jobs in the background; a job runner sends SIGTERM.

    Only the first one counts: the next must not keep the servers from being stopped.
    """

    def interrupt(signum: int, frame: Any) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
