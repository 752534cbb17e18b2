"""Our options as flags of SGLang's command line and keywords of ``sglang.Engine(...)``.

They travel as one more field of SGLang's ``ServerArgs``: ``specv2_options``, a plain dict of what
was given. Being a field, it goes wherever the others go: into scheduler processes by pickling, into
the draft's copy, through ``dataclasses.replace`` and into ``/get_server_info``.
"""

import argparse
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sglang_specv2 import gates
from sglang_specv2.calibration import file
from sglang_specv2.config import (
    SpecV2Config,
    check_step_choices,
    resolve,
    settings,
    validate_against_server,
)
from sglang_specv2.errors import CompatibilityError, ConfigError
from sglang_specv2.options import OPTIONS, Option
from sglang_specv2.patching import Undo, is_wrapped, wrap

logger = logging.getLogger(__name__)

MODULE = "sglang.srt.server_args"
FIELD = "specv2_options"


@dataclass
class _Extension:
    """Holds the field that ServerArgs gains, as the dataclass machinery describes it."""

    specv2_options: dict[str, Any] = field(default_factory=dict)


def install(server_args: ModuleType) -> Undo:
    """Adds the options to ``ServerArgs`` of the imported :data:`MODULE`.

    Raises:
        CompatibilityError: ``ServerArgs`` lacks what this wraps.
    """
    cls = _server_args_class(server_args)
    undo_flags = wrap(cls, "add_cli_args", _add_flags)
    undo_keywords = wrap(cls, "__init__", _take_keywords)
    cls.__dataclass_fields__[FIELD] = fields(_Extension)[0]

    def undo() -> None:
        undo_flags()
        undo_keywords()
        cls.__dataclass_fields__.pop(FIELD, None)

    return undo


def in_place(server_args: ModuleType) -> bool:
    """Whether :func:`install` has been done to the module."""
    cls = _server_args_class(server_args)
    return is_wrapped(cls, "add_cli_args") and is_wrapped(cls, "__init__")


def _server_args_class(server_args: ModuleType) -> Any:
    cls = getattr(server_args, "ServerArgs", None)
    if not is_dataclass(cls):
        raise CompatibilityError(f"{MODULE}.ServerArgs: expected a dataclass, found {cls!r}")
    return cls


class _Collect(argparse.Action):
    """Stores a flag's value in the dict that becomes the field."""

    def __init__(self, option_strings: Sequence[str], dest: str, option: Option, **kwargs: Any):
        super().__init__(option_strings, dest, default=argparse.SUPPRESS, **kwargs)
        self._option = option

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        try:
            value = self._option.parse(values)
        except ValueError as error:
            raise argparse.ArgumentError(self, f"expected {error}, got {values!r}") from None
        given = getattr(namespace, FIELD, {})
        setattr(namespace, FIELD, {**given, self._option.field: value})


def actions() -> list[argparse.Action]:
    """The flags as a parser has them, SGLang's own not among them."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_flags(lambda parser: None, parser)
    return parser._actions


def _add_flags(original: Callable[..., None], parser: argparse.ArgumentParser) -> None:
    original(parser)
    group = parser.add_argument_group(
        "dynamic speculation (sglang-specv2)", "Each has a variable too: SGLANG_SPECV2_…"
    )
    for option in OPTIONS:
        if option.flag is not None:
            group.add_argument(
                option.flag,
                dest=FIELD,
                action=_Collect,
                option=option,
                metavar=option.metavar,
                help=option.help,
            )


def _take_keywords(
    original: Callable[..., None],
    self: Any,
    *args: Any,
    specv2_options: dict[str, Any] | None = None,
    **kwargs: Any,
) -> None:
    options = dict(specv2_options or {})
    for option in OPTIONS:
        if option.flag is not None and option.keyword in kwargs:
            options[option.field] = kwargs.pop(option.keyword)
    self.specv2_options = {name: given.value for name, given in settings(options, {}).items()}
    config = resolve(self.specv2_options)
    limit, n = kwargs.get("max_running_requests"), config.disable_batch_threshold
    if limit is not None and n is not None and n > limit:
        raise ConfigError(
            f"{settings(self.specv2_options)['disable_batch_threshold'].source}: expected less "
            f"than --max-running-requests {limit}, got {n}; a batch never gets that large"
        )
    original(self, *args, **kwargs)
    reasons = gates.reasons(self)
    gates.refuse_or_leave(self, reasons)
    if reasons:
        return
    if self.max_running_requests is not None:
        validate_against_server(
            config,
            max_running_requests=self.max_running_requests,
            capture_sizes=planned_capture_sizes(self),
        )
    num_steps = getattr(self, "speculative_num_steps", None)
    if num_steps is not None:
        topk = getattr(self, "speculative_eagle_topk", None) or 1
        check_step_choices(config.step_choices, num_steps=num_steps, topk=topk)
    if not kwargs.get("node_rank"):  # The first rank alone reads and writes files.
        _check_files(config)


def _check_files(config: SpecV2Config) -> None:
    """The worker comes to them after weights and graphs.

    Raises:
        ConfigError: a calibration is none, or there is no place for one.
    """
    if config.calibration is not None:
        file.parse(Path(config.calibration))
    out = config.calibration_out
    if out is not None and (Path(out).is_dir() or not Path(out).parent.is_dir()):
        raise ConfigError(
            f"SGLANG_SPECV2_CALIBRATION_OUT: expected a file in a folder that is there, got {out}; "
            "give another"
        )


def planned_capture_sizes(server_args: Any) -> tuple[int, ...]:
    """Batch sizes that SGLang plans to capture for decode; empty where it captures none.

    The worker repeats the check with what was captured, which memory can have made less.
    """
    graphs = getattr(server_args, "cuda_graph_config", None)
    if graphs is None or graphs.decode.backend == "disabled":
        return ()
    return tuple(graphs.decode.bs or ())
