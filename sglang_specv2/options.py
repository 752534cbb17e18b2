"""The one table of settings: each with its field, flag, keyword, variable, and how to read it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DYNAMICS = ("threshold", "always", "never")
DRAFT_SYNCS = ("auto", "kv", "extend", "off")

DEFAULT_SWITCH_MIN_DWELL = 8


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
        "(default: N less an eighth, at least one less).",
    ),
    Option(
        field="switch_min_dwell",
        flag="--speculative-switch-min-dwell",
        variable="SGLANG_SPECV2_SWITCH_MIN_DWELL",
        parse=_positive_integer,
        metavar="STEPS",
        help="Decode steps from one switch of speculation to the next, at least "
        f"(default: {DEFAULT_SWITCH_MIN_DWELL}).",
    ),
    Option(
        field="dynamic",
        flag="--speculative-dynamic",
        variable="SGLANG_SPECV2_DYNAMIC",
        parse=_one_of(DYNAMICS),
        metavar="{" + ",".join(DYNAMICS) + "}",
        help="When to speculate: by the batch thresholds, always, or never "
        "(default: threshold where a threshold is given, else always).",
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
        field="test_schedule",
        variable="SGLANG_SPECV2_TEST_SCHEDULE",
        parse=_schedule,
        help="`every:STEPS` or `random:SEED` forces switches, for tests.",
    ),
)
