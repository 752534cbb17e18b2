"""``sglang-specv2 set``: another policy, threshold or margin on a running server."""

from __future__ import annotations

import argparse
import os
from typing import Any

from sglang_specv2.cli import http, status
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy.control import CODES, PREFIX

_FLAGS: dict[str, tuple[str, type, str, str]] = {
    "--disable-batch-threshold": (
        "disable_batch_threshold",
        int,
        "N",
        "plain steps above N requests; means policy threshold",
    ),
    "--enable-batch-threshold": (
        "enable_batch_threshold",
        int,
        "M",
        "speculation again at or under M requests",
    ),
    "--switch-min-dwell": (
        "switch_min_dwell",
        int,
        "STEPS",
        "decode steps from one switch to the next, at least",
    ),
    "--switch-margin": (
        "switch_margin",
        float,
        "SHARE",
        "how much faster speculation has to be estimated; means policy auto",
    ),
}


def add_parser(commands: Any) -> None:
    """Adds ``set``."""
    parser = commands.add_parser(
        "set",
        help="change policy, thresholds or margin of a running server",
        description="Takes effect at the server's next step, on every rank. A threshold alone "
        "means policy threshold, a margin alone policy auto.",
    )
    http.add_arguments(parser)
    parser.add_argument(
        "--admin-api-key",
        default=os.environ.get(http.ADMIN_API_KEY),
        help=f"the server's, where it has one beside --api-key (default: ${http.ADMIN_API_KEY})",
    )
    parser.add_argument("--policy", choices=CODES, help="the policy from the next step on")
    for flag, (field, kind, metavar, text) in _FLAGS.items():
        parser.add_argument(flag, dest=field, type=kind, metavar=metavar, help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, sglang_argv: list[str]) -> int:
    """Changes the settings and prints the state that came of it.

    Raises:
        ConfigError: nothing was given, or a margin that is none.
        ServerAnswerError: there is no such server, or it refused.
    """
    status.reject_unknown("set", sglang_argv)
    fields = [field for field, *_ in _FLAGS.values()]
    values = {
        PREFIX + field: getattr(args, field) for field in fields if getattr(args, field) is not None
    }
    if args.switch_margin is not None and not 0 <= args.switch_margin <= 1:
        # JSON has no NaN, and SGLang would speak of that.
        raise ConfigError(
            f"--switch-margin: expected a number from 0 to 1, got {args.switch_margin}; change it"
        )
    if args.policy is not None:
        values[f"{PREFIX}dynamic"] = CODES[args.policy]
    if not values:
        raise ConfigError(f"set: expected --policy or one of {', '.join(_FLAGS)}, got nothing")
    http.states(args.url, args.api_key)
    key = args.admin_api_key or args.api_key
    updated = http.request(args.url, "/set_internal_state", key, {"server_args": values})
    if not all(updated):
        raise http.ServerAnswerError(
            f"{args.url}: the server refused without a reason; see its log"
        )
    for state in http.states(args.url, args.api_key):
        print("\n".join(status.lines(state)))
    return 0
