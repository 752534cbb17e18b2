"""``sglang-specv2 status``: what a running server does, and thinks."""

from __future__ import annotations

import argparse
import json
from typing import Any

from sglang_specv2.cli import http


def add_parser(commands: Any) -> None:
    """Adds ``status``."""
    parser = commands.add_parser("status", help="show policy, mode and counts of a running server")
    http.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="all of it, as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, sglang_argv: list[str]) -> int:
    """Prints the state.

    Raises:
        ServerAnswerError: there is no such server.
    """
    reject_unknown("status", sglang_argv)
    states = http.states(args.url, args.api_key)
    if args.json:
        print(json.dumps(states, indent=1))
    else:
        for state in states:
            print("\n".join(lines(state)))
    return 0


def reject_unknown(command: str, argv: list[str]) -> None:
    """Commands that pass nothing on to SGLang take no flags but theirs.

    Raises:
        ConfigError: there are others.
    """
    from sglang_specv2.errors import ConfigError

    if argv:
        raise ConfigError(
            f"{command}: unknown {' '.join(argv)}; see `sglang-specv2 {command} --help`"
        )


def lines(state: dict[str, Any]) -> list[str]:
    """The state in words, a line each."""
    settings = {k: v for k, v in state.get("settings", {}).items() if k != "dynamic"}
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in settings.items())
    seconds, steps = state["seconds"], state["steps"]
    rows = [
        ("policy", state["policy"] + (f" ({told})" if told else "")),
        ("mode", f"{state['mode']}, {state['draft_steps']} draft steps"),
        ("last batch", f"{state['batch_size']} requests"),
        ("draft sync", state["draft_sync"] or "none: never off"),
        ("steps", ", ".join(f"{count} {family}" for family, count in steps.items()) or "none yet"),
        ("time", ", ".join(f"{total:.1f} s {mode}" for mode, total in seconds.items())),
        (
            "switches",
            ", ".join(f"{n} to {mode}" for mode, n in state["switches"].items()) or "none yet",
        ),
        ("resumes", str(state["resumes"])),
    ]
    if state["accept_length"] is not None:
        rows.append(("accept length", f"{state['accept_length']:.2f} over {state['verifies']}"))
    if state.get("calibration_failure"):
        rows.append(("not timed", state["calibration_failure"]))
    rows += [("not captured", reason) for reason in state.get("capture_failures", ())]
    auto = state.get("auto")
    if auto is not None:
        speed_up = auto["estimated_speed_up"]
        rows.append(
            ("speed-up", "no batch yet" if speed_up is None else f"{speed_up:.2f} estimated")
        )
        rows.append(("probes", f"{auto['probes']}, {auto['probe_cost_s']:.2f} s estimated"))
    return [f"{name:<14}{text}" for name, text in rows]
