"""What the user can set, where it comes from, and when it is wrong.

Every setting exists as a flag of SGLang's command line, as a keyword of ``sglang.Engine(...)`` and
as an environment variable (:mod:`sglang_specv2.options`). Flags and keywords win over variables.
This module is the only reader of those variables.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from sglang_specv2.errors import ConfigError
from sglang_specv2.options import DEFAULT_SWITCH_MARGIN, DEFAULT_SWITCH_MIN_DWELL, OPTIONS

SWITCH = "SGLANG_SPECV2"
"""``SGLANG_SPECV2=0`` leaves SGLang untouched."""

SGLANG_MAX_RUNNING_REQUESTS = 48
"""What SGLang sets ``max_running_requests`` to under speculation when the user leaves it open."""

_THRESHOLDS = ("disable_batch_threshold", "enable_batch_threshold")
_ONLY_FOR = dict.fromkeys(_THRESHOLDS, "threshold") | dict.fromkeys(
    ("switch_margin", "step_choices", "calibration", "calibration_out"), "auto"
)
"""Settings that mean something for one ``dynamic`` only."""
_FLAG_NAMES = {option.field: option.flag or option.variable for option in OPTIONS}
_VARIABLES = (
    SWITCH,
    *(option.variable for option in OPTIONS),
    *(f"{SWITCH}_{name}" for name in ("CPU", "CPU_RESTARTED", "API_KEY", "ADMIN_API_KEY")),
)
"""All that begin with the name of the switch, those that other modules read among them."""


class Setting(NamedTuple):
    """A parsed value, and the name under which the user gave it."""

    value: Any
    source: str


@dataclass(frozen=True)
class SpecV2Config:
    """How this server speculates. Impossible values and combinations raise :class:`ConfigError`.

    Attributes:
        dynamic: ``auto``, ``threshold``, ``always`` or ``never``.
        disable_batch_threshold: N, in requests; speculation stops above it. ``threshold`` needs
            it, nothing else takes it.
        enable_batch_threshold: M, in requests; speculation resumes at or under it. Left out, it
            follows from N, see :func:`enable_threshold_of`.
        switch_min_dwell: decode steps from one switch to the next, at least; for ``threshold`` and
            ``auto``, which does not wait longer than costs a plain step.
        switch_margin: how much faster speculation has to be before it begins, 0 to 1; for ``auto``.
        step_choices: numbers of draft steps that ``auto`` chooses from; None: 0 and what the
            server was started with.
        calibration: file of step times for ``auto``; None: measured at start.
        calibration_out: file that takes what was measured at start.
        draft_sync: how the draft's KV cache is kept while not speculating.
        capture_failure: ``refuse`` or ``eager``, where graphs beside the speculative ones cannot
            be captured.
        test_schedule: ``every:STEPS`` or ``random:SEED`` forces switches in place of ``dynamic``.
    """

    dynamic: str = "auto"
    disable_batch_threshold: int | None = None
    enable_batch_threshold: int | None = None
    switch_min_dwell: int = DEFAULT_SWITCH_MIN_DWELL
    switch_margin: float = DEFAULT_SWITCH_MARGIN
    step_choices: tuple[int, ...] | None = None
    calibration: str | None = None
    calibration_out: str | None = None
    draft_sync: str = "auto"
    capture_failure: str = "refuse"
    test_schedule: str | None = None

    def __post_init__(self) -> None:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        given = {name: value for name, value in values.items() if value is not None}
        for name, setting in settings(given, {}).items():
            object.__setattr__(self, name, setting.value)
        if self.switch_margin == DEFAULT_SWITCH_MARGIN:
            del given["switch_margin"]  # A default contradicts nothing.
        _check_together(given, _FLAG_NAMES)
        if self.disable_batch_threshold is not None and self.enable_batch_threshold is None:
            follows = enable_threshold_of(self.disable_batch_threshold)
            object.__setattr__(self, "enable_batch_threshold", follows)

    @classmethod
    def from_server_args(
        cls, server_args: Any, environ: Mapping[str, str] | None = None
    ) -> "SpecV2Config":
        """Merges the options attached to SGLang's ``ServerArgs`` (they win) with the environment.

        Raises:
            ConfigError: a value or a combination is impossible; names the flag or variable.
        """
        return resolve(given_options(server_args), environ)


def enable_threshold_of(disable_threshold: int) -> int:
    """Where speculation resumes unless that was given, in requests, for a disable threshold N:
    N − max(1, N // 8), but at least 1, since no batch being decoded is smaller."""
    return max(1, disable_threshold - max(1, disable_threshold // 8))


def given_options(server_args: Any) -> dict[str, Any]:
    """The options given to this ``ServerArgs`` as flags or keywords, by field name."""
    return dict(getattr(server_args, "specv2_options", None) or {})


def auto_asked_for(server_args: Any, environ: Mapping[str, str] | None = None) -> bool:
    """Whether policy ``auto`` was asked for, in so many words or by a setting that is its alone;
    it is also what a server gets that was given nothing."""
    found = settings(given_options(server_args), environ)
    return "dynamic" in found or any(_ONLY_FOR.get(name) == "auto" for name in found)


def plugin_enabled(environ: Mapping[str, str] | None = None) -> bool:
    """Whether SGLang may be patched at all: false under ``SGLANG_SPECV2=0``.

    Raises:
        ConfigError: the variable is neither 0 nor 1.
    """
    value = (os.environ if environ is None else environ).get(SWITCH, "").strip() or "1"
    if value not in ("0", "1"):
        raise ConfigError(f"{SWITCH}: expected 0 (off) or 1 (on, the default), got {value!r}")
    return value == "1"


def settings(
    options: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> dict[str, Setting]:
    """Everything the user set, parsed, by field name; what was left alone is absent.

    Args:
        options: values given as flags or keywords, by field name; None counts as not given.
        environ: the environment to read, the process's own by default; an empty variable counts
            as not given.

    Raises:
        ConfigError: a value does not parse, or an option or a variable of our name is unknown.
    """
    environ = os.environ if environ is None else environ
    unknown = sorted(set(options) - _FLAG_NAMES.keys())
    if unknown:
        raise ConfigError(
            f"unknown option {', '.join(unknown)}: expected one of {', '.join(_FLAG_NAMES)}"
        )
    for name in environ:
        if name.startswith(f"{SWITCH}_") and name not in _VARIABLES:
            close = difflib.get_close_matches(name, _VARIABLES, 1)
            meant = f"; did you mean {close[0]}?" if close else "; see docs/flags.md"
            raise ConfigError(f"{name}: there is no such variable{meant}")
    found = {}
    for option in OPTIONS:
        value, source = options.get(option.field), _FLAG_NAMES[option.field]
        if value is None:
            value, source = environ.get(option.variable, "").strip() or None, option.variable
        if value is None:
            continue
        try:
            found[option.field] = Setting(option.parse(value), source)
        except ValueError as error:
            raise ConfigError(f"{source}: expected {error}, got {value!r}") from None
    return found


def resolve(options: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> SpecV2Config:
    """Builds the configuration from flags over the environment.

    Without ``dynamic``, a threshold means ``threshold``, and nothing means ``auto``. A flag also
    overrules what a variable implies: ``--speculative-dynamic always`` drops thresholds that come
    from the environment, and a threshold flag drops ``SGLANG_SPECV2_DYNAMIC``.

    Raises:
        ConfigError: see :func:`settings` and :class:`SpecV2Config`.
    """
    found = settings(options, environ)
    flags = {name for name, value in options.items() if value is not None}
    asked = _implied_dynamic({name: found[name] for name in found if name in flags})
    if asked is not None:
        found = {
            name: setting
            for name, setting in found.items()
            if name in flags or _ONLY_FOR.get(name, asked.value) == asked.value
        }
    else:
        asked = _implied_dynamic(found)
    if asked is not None:
        found["dynamic"] = asked
    values = {name: setting.value for name, setting in found.items()}
    sources = _FLAG_NAMES | {name: setting.source for name, setting in found.items()}
    _check_together(values, sources)
    config = SpecV2Config(**values)
    if "switch_min_dwell" in flags and config.dynamic not in ("threshold", "auto"):
        raise ConfigError(
            f"{sources['switch_min_dwell']} has no effect with dynamic {config.dynamic}: give "
            f"{sources['disable_batch_threshold']} too, or leave it out"
        )
    return config


def _implied_dynamic(found: Mapping[str, Setting]) -> Setting | None:
    """What these settings say about ``dynamic``, in so many words or by being for one alone."""
    if "dynamic" in found:
        return found["dynamic"]
    for name, setting in found.items():
        if name in _ONLY_FOR:
            return Setting(_ONLY_FOR[name], setting.source)
    return None


def _check_together(values: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    dynamic = values.get("dynamic", "auto")
    disable, enable = (values.get(name) for name in _THRESHOLDS)
    if dynamic == "threshold" and disable is None:
        asked_by = sources["enable_batch_threshold" if enable is not None else "dynamic"]
        raise ConfigError(
            f"{asked_by} needs {_FLAG_NAMES['disable_batch_threshold']} N: the batch size above "
            "which speculation stops"
        )
    for name, meant_for in _ONLY_FOR.items():
        if name in values and dynamic != meant_for:
            by = sources["dynamic"]
            policy = f"{by} {dynamic}" if "DYNAMIC" in by.upper() else f"{by} (policy {dynamic})"
            raise ConfigError(
                f"{sources[name]} {values[name]} contradicts {policy}: expected {meant_for}; leave "
                "one of them out"
            )
    if disable is not None and enable is not None and enable > disable:
        raise ConfigError(
            f"{sources['enable_batch_threshold']}: expected at most {disable}, the value of "
            f"{sources['disable_batch_threshold']}, got {enable}; speculation has to resume at or "
            "under the batch size where it stops"
        )


def check_step_choices(choices: Iterable[int] | None, *, num_steps: int, topk: int) -> None:
    """Whether a server with these settings of SGLang can choose among these numbers of draft steps.

    Raises:
        ConfigError: one of them is above what the server speculates with, or drafts are trees.
    """
    wanted = sorted(set(choices or ()) - {0, num_steps})
    if not wanted:
        return
    flag = _FLAG_NAMES["step_choices"]
    if topk > 1:
        raise ConfigError(
            f"{flag}: expected 0 and {num_steps} alone, since drafts are trees "
            f"(--speculative-eagle-topk {topk}), got {wanted[0]} too; leave it out"
        )
    if wanted[-1] > num_steps:
        raise ConfigError(
            f"{flag}: expected at most {num_steps}, the value of --speculative-num-steps, got "
            f"{wanted[-1]}; leave it out, or raise that"
        )


def validate_against_server(
    config: SpecV2Config, *, max_running_requests: int, capture_sizes: Iterable[int]
) -> list[str]:
    """Checks the threshold against what the running server can do.

    Args:
        config: the settings in force.
        max_running_requests: the largest batch the scheduler forms, in requests.
        capture_sizes: batch sizes with a captured speculative graph; empty where capture is off.

    Returns:
        Warnings, in words: the threshold can never be crossed.

    Raises:
        ConfigError: batches between the largest capture size and N would be speculated on
            without a graph.
    """
    n = config.disable_batch_threshold
    if n is None:
        return []
    flag = _FLAG_NAMES["disable_batch_threshold"]
    largest = max(capture_sizes, default=0)
    if largest and largest < min(n, max_running_requests):
        raise ConfigError(
            f"{flag}: expected at most {largest}, the largest batch size with a captured "
            f"speculative graph, got {n}; lower it, or raise --cuda-graph-max-bs-decode to {n}"
        )
    if n < max_running_requests:
        return []
    warning = (
        f"{flag} {n} is never crossed: this server runs at most {max_running_requests} requests "
        "at once, so speculation stays on"
    )
    if max_running_requests == SGLANG_MAX_RUNNING_REQUESTS:
        warning += (
            f" (SGLang sets {SGLANG_MAX_RUNNING_REQUESTS} under speculation when "
            "--max-running-requests is not given)"
        )
    return [f"{warning}; give --max-running-requests a value above {n}, or lower the threshold"]
