"""The one table of settings: each with its field, flag, keyword, variable, and how to read it."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DYNAMICS = ("auto", "threshold", "always", "never")
DRAFT_SYNCS = ("auto", "kv", "extend", "off")
CAPTURE_FAILURES = ("refuse", "eager")

DEFAULT_SWITCH_MIN_DWELL = 8
DEFAULT_SWITCH_MARGIN = 0.02


def _positive_integer(value: Any) -> int:
    expected = "a whole number, at least 1"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(expected)
    try:
        number = int(value)
    except ValueError:
        raise ValueError(expected) from None
    if number < 1:
        raise ValueError(expected)
    return number


def _one_of(choices: tuple[str, ...]) -> Callable[[Any], str]:
    def parse(value: Any) -> str:
        if value not in choices:
            raise ValueError("one of " + ", ".join(choices))
        return str(value)

    return parse


def _share(value: Any) -> float:
    expected = "a number from 0 to 1"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(expected)
    try:
        number = float(value)
    except ValueError:
        raise ValueError(expected) from None
    if not 0 <= number <= 1:
        raise ValueError(expected)
    return number


def _path(value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or not str(value):
        raise ValueError("the path of a file")
    return str(value)


def _step_choices(value: Any) -> tuple[int, ...]:
    expected = "numbers of draft steps with commas between, 0 and at least one more, like 0,1,2"
    parts = value.split(",") if isinstance(value, str) else value
    try:
        numbers = tuple(sorted({int(part) for part in parts}))
    except (TypeError, ValueError):
        raise ValueError(expected) from None
    if len(numbers) < 2 or numbers[0] != 0:
        raise ValueError(expected)
    return numbers


def _schedule(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"every:[1-9]\d*|random:\d+", value):
        raise ValueError("every:STEPS or random:SEED")
    return value


@dataclass(frozen=True)
class Option:
    """One setting: the field of :class:`SpecV2Config` it fills, and its names outside.

    ``parse`` takes what the user gave (a string, or any object from a keyword) and returns the
    field's value, or raises ValueError with the words for what it expected. An option without a
    flag exists only as a variable.
    """

    field: str
    variable: str
    parse: Callable[[Any], Any]
    flag: str | None = None
    metavar: str | None = None
    help: str = ""

    @property
    def keyword(self) -> str:
        """The name in ``sglang.Engine(...)`` and in parsed arguments."""
        return (self.flag or self.field).removeprefix("--").replace("-", "_")


OPTIONS: tuple[Option, ...] = (
    Option(
        field="disable_batch_threshold",
        flag="--speculative-disable-batch-threshold",
        variable="SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD",
        parse=_positive_integer,
        metavar="N",
        help="Stop speculating while more than N requests are being decoded.",
    ),
    Option(
        field="enable_batch_threshold",
        flag="--speculative-enable-batch-threshold",
        variable="SGLANG_SPECV2_ENABLE_BATCH_THRESHOLD",
        parse=_positive_integer,
        metavar="M",
        help="Speculate again once at most M requests are being decoded "
        "(default: N less an eighth, at least one less, but 1 at the least).",
    ),
    Option(
        field="switch_min_dwell",
        flag="--speculative-switch-min-dwell",
        variable="SGLANG_SPECV2_SWITCH_MIN_DWELL",
        parse=_positive_integer,
        metavar="STEPS",
        help="Decode steps from one switch of speculation to the next, at least; auto does not "
        f"wait longer than costs a plain step (default: {DEFAULT_SWITCH_MIN_DWELL}).",
    ),
    Option(
        field="dynamic",
        flag="--speculative-dynamic",
        variable="SGLANG_SPECV2_DYNAMIC",
        parse=_one_of(DYNAMICS),
        metavar="{" + ",".join(DYNAMICS) + "}",
        help="When to speculate: where it is measured to be faster, by the batch thresholds, "
        "always, or never (default: threshold where a threshold is given, else auto).",
    ),
    Option(
        field="switch_margin",
        flag="--speculative-switch-margin",
        variable="SGLANG_SPECV2_SWITCH_MARGIN",
        parse=_share,
        metavar="SHARE",
        help="auto: how much faster speculation has to be estimated before it begins "
        f"(default: {DEFAULT_SWITCH_MARGIN}).",
    ),
    Option(
        field="step_choices",
        flag="--speculative-step-choices",
        variable="SGLANG_SPECV2_STEP_CHOICES",
        parse=_step_choices,
        metavar="STEPS,STEPS,…",
        help="auto: numbers of draft steps to choose from; 0 is a plain step "
        "(default: 0 and --speculative-num-steps).",
    ),
    Option(
        field="calibration",
        flag="--speculative-calibration",
        variable="SGLANG_SPECV2_CALIBRATION",
        parse=_path,
        metavar="FILE",
        help="auto: step times from `sglang-specv2 calibrate`, in place of measuring at start.",
    ),
    Option(
        field="draft_sync",
        flag="--speculative-draft-sync",
        variable="SGLANG_SPECV2_DRAFT_SYNC",
        parse=_one_of(DRAFT_SYNCS),
        metavar="{" + ",".join(DRAFT_SYNCS) + "}",
        help="How the draft's KV cache follows while not speculating: kv writes K and V only, "
        "extend runs the whole draft for one token, off leaves holes, auto takes the cheapest "
        "that is right for the draft (default: auto).",
    ),
    Option(
        field="capture_failure",
        flag="--speculative-capture-failure",
        variable="SGLANG_SPECV2_CAPTURE_FAILURE",
        parse=_one_of(CAPTURE_FAILURES),
        metavar="{" + ",".join(CAPTURE_FAILURES) + "}",
        help="Where CUDA graphs beside the speculative ones cannot be captured (out of memory, "
        "unsupported backend): refuse to start, or run those steps eagerly (default: refuse).",
    ),
    Option(
        field="calibration_out",
        variable="SGLANG_SPECV2_CALIBRATION_OUT",
        parse=_path,
        help="File that takes the step times measured at start.",
    ),
    Option(
        field="test_schedule",
        variable="SGLANG_SPECV2_TEST_SCHEDULE",
        parse=_schedule,
        help="`every:STEPS` or `random:SEED` forces switches, for tests.",
    ),
)
