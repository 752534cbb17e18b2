"""What a server with given flags of SGLang would get of dynamic speculation, and why not more."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from sglang_specv2 import gates
from sglang_specv2.cli.explain import Shape
from sglang_specv2.cli.report import Report, State
from sglang_specv2.config import (
    SpecV2Config,
    given_options,
    settings,
    validate_against_server,
)
from sglang_specv2.errors import ConfigError, SpecV2Error, UnsupportedError
from sglang_specv2.flags import planned_capture_sizes

SECTION = "these flags"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


def shape(sglang_argv: list[str]) -> Shape:
    """The rows per request that flags of SGLang fix, read without SGLang.

    Raises:
        ConfigError: one of the numbers is none.
    """
    parser = _Parser(add_help=False, allow_abbrev=False)
    for flag in (
        "--speculative-num-draft-tokens",
        "--speculative-num-steps",
        "--speculative-eagle-topk",
        "--max-running-requests",
    ):
        parser.add_argument(flag, type=int)
    args, _ = parser.parse_known_args(sglang_argv)
    draft_tokens, topk = args.speculative_num_draft_tokens, args.speculative_eagle_topk
    if draft_tokens is None and args.speculative_num_steps is not None and topk in (None, 1):
        draft_tokens = args.speculative_num_steps + 1
    return Shape(draft_tokens, topk, args.max_running_requests)


def examine(report: Report, sglang_argv: list[str], *, gpu_expected: bool) -> None:
    """Adds what a server with these flags would get. Needs SGLang imported and patched."""
    if not sglang_argv:
        report.add(SECTION, State.NOTE, "none; give those of `sglang serve` to see what they get")
        return
    try:
        given = _parse(sglang_argv)
    except ConfigError as error:
        report.add(SECTION, State.PROBLEM, str(error))
        return
    args = _resolve(report, given, gpu_expected)
    if args is None:
        return
    found = gates.reasons(args)
    if found:
        asked = [setting.source for setting in settings(given_options(args)).values()]
        if asked:
            text = f"{', '.join(asked)}: refused at start, dynamic speculation cannot be had here"
            report.add(SECTION, State.PROBLEM, text)
        else:
            text = "dynamic speculation: no, SGLang serves by itself"
            report.add(SECTION, State.NOTE, text)
        for reason in found:
            report.add(SECTION, State.NOTE, reason)
        return
    report.add(SECTION, State.OK, "dynamic speculation: yes")
    config = SpecV2Config.from_server_args(args)
    report.add(SECTION, State.OK, describe(config))
    _limits(report, config, args)
    _draft_sync(report, config, args)


def describe(config: SpecV2Config) -> str:
    """When a server speculates, in words."""
    if config.test_schedule is not None:
        return f"switches are forced for a test: {config.test_schedule}"
    if config.dynamic == "threshold":
        return (
            f"speculates up to {config.disable_batch_threshold} requests; once above, again from "
            f"{config.enable_batch_threshold} down; {config.switch_min_dwell} steps between "
            "switches at least"
        )
    if config.dynamic == "auto":
        times = "measured at start" if config.calibration is None else config.calibration
        return (
            f"speculates where it is estimated to be faster by {config.switch_margin:.0%}; step "
            f"times: {times}; {config.switch_min_dwell} steps between switches at least"
        )
    always = "always speculates; leave --speculative-dynamic out to stop where it costs"
    return always if config.dynamic == "always" else "never speculates"


def _parse(sglang_argv: list[str]) -> argparse.Namespace:
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.server_args_config_parser import ConfigArgumentMerger

    parser = _Parser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    if not sglang_argv[0].startswith("-"):
        sglang_argv = ["--model-path", *sglang_argv]
    return parser.parse_args(ConfigArgumentMerger(parser).merge_config_with_args(sglang_argv))


def _resolve(report: Report, given: argparse.Namespace, gpu_expected: bool) -> Any:
    """The flags as SGLang resolves them, or as given where it cannot; None when refused."""
    from sglang.srt.server_args import ServerArgs

    try:
        return ServerArgs.from_cli_args(given)
    except UnsupportedError:
        return given
    except SpecV2Error as error:
        report.add(SECTION, State.PROBLEM, str(error))
        return None
    except Exception as error:  # noqa: BLE001  whatever SGLang raises on flags is the finding
        # Without a GPU SGLang refuses much that it takes with one, but no file is found by it.
        state = State.PROBLEM if gpu_expected or isinstance(error, OSError) else State.NOTE
        report.add(SECTION, state, f"SGLang does not take them here: {error!r}")
        return given


def _limits(report: Report, config: SpecV2Config, args: Any) -> None:
    max_running_requests = getattr(args, "max_running_requests", None)
    if max_running_requests is None:
        return
    try:
        warnings = validate_against_server(
            config,
            max_running_requests=max_running_requests,
            capture_sizes=planned_capture_sizes(args),
        )
    except ConfigError as error:
        report.add(SECTION, State.PROBLEM, str(error))
        return
    for warning in warnings:
        report.add(SECTION, State.NOTE, warning)


def _draft_sync(report: Report, config: SpecV2Config, args: Any) -> None:
    from sglang_specv2.draft_sync import explain_mode

    draft = getattr(args, "speculative_draft_model_path", None) or args.model_path
    draft_config = _model_config(draft)
    if draft_config is None:
        report.add(
            SECTION,
            State.NOTE,
            f"draft sync: not known before {draft} is on this machine",
        )
        return
    try:
        mode, reason = explain_mode(draft_config, config.draft_sync)
    except ConfigError as error:
        report.add(SECTION, State.PROBLEM, str(error))
        return
    report.add(SECTION, State.OK, f"draft sync while not speculating: {mode} ({reason})")


def _model_config(model: str) -> Mapping[str, Any] | None:
    """A model's ``config.json`` from its folder or the Hugging Face cache; None when in neither."""
    file = Path(model) / "config.json"
    if not file.is_file():
        try:
            from huggingface_hub import try_to_load_from_cache
            from huggingface_hub.errors import HFValidationError
        except ImportError:
            return None
        try:
            cached = try_to_load_from_cache(model, "config.json")
        except HFValidationError:
            return None
        if not isinstance(cached, str):
            return None
        file = Path(cached)
    loaded = json.loads(file.read_text(encoding="utf-8"))
    return loaded if isinstance(loaded, dict) else None
