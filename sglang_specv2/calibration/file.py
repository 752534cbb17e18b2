"""A calibration on disk: step times, and what they were measured on.

Step times hold for one machine, model and set of graphs. :class:`Subject` is what has to be the
same; provenance is what a reader wants to know besides.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from sglang_specv2.errors import ConfigError
from sglang_specv2.policy import CostModel
from sglang_specv2.version import __version__

FORMAT = 1

_REMEDY = "make one here with `sglang-specv2 calibrate`, or leave --speculative-calibration out"


@dataclass(frozen=True)
class Subject:
    """What was measured. A calibration of another subject is refused.

    Attributes:
        gpu: its name, or the CPU's.
        gpu_count: tensor-parallel ranks.
        sglang, torch: versions.
        attention_backend: of decode.
        model, draft: architecture and a digest of the configuration.
        dtype, kv_cache_dtype: of the target.
        quantization, draft_quantization: of the weights, or None.
        num_steps, topk, num_draft_tokens: of speculation.
        draft_sync: ``kv``, ``extend`` or ``off``.
        capture_sizes: batch sizes with graphs.
    """

    gpu: str
    gpu_count: int
    sglang: str
    torch: str
    attention_backend: str
    model: str
    draft: str
    dtype: str
    kv_cache_dtype: str
    quantization: str | None
    draft_quantization: str | None
    num_steps: int
    topk: int
    num_draft_tokens: int
    draft_sync: str
    capture_sizes: tuple[int, ...]

    def differences(self, other: Subject) -> list[str]:
        """Where ``other`` is not the same, as ``name: mine, not theirs``."""
        return [
            f"{field.name} {getattr(self, field.name)}, not {getattr(other, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(other, field.name)
        ]


class Calibration(NamedTuple):
    """Step times, and the circumstances: date, driver, commit, clocks …, anything JSON holds."""

    cost: CostModel
    provenance: Mapping[str, Any]


def write(path: Path, calibration: Calibration, subject: Subject) -> None:
    """Write a calibration file, all or nothing.

    Args:
        path: file to make or replace.
        calibration: the step times.
        subject: what they were measured on.

    Raises:
        ConfigError: the file cannot be written there.
    """
    content = {
        "format": FORMAT,
        "sglang_specv2": __version__,
        "subject": asdict(subject),
        "provenance": dict(calibration.provenance),
        "step_times": calibration.cost.as_dict(),
    }
    try:
        descriptor, partial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            json.dump(content, out, indent=1)
            out.write("\n")
        os.replace(partial, path)
    except OSError as error:
        raise ConfigError(
            f"calibration {path}: expected a place to write to, got {error.strerror}; give another"
        ) from error


def read(path: Path, subject: Subject) -> Calibration:
    """A calibration file that was measured on ``subject``.

    Raises:
        ConfigError: there is no such file, it is broken, or it was measured on something else;
            names every difference.
    """
    measured, calibration = parse(path)
    differences = measured.differences(subject)
    if differences:
        raise ConfigError(
            f"calibration {path}: expected one of this machine and model, got one of "
            f"{'; '.join(differences)}; {_REMEDY}"
        )
    return calibration


def parse(path: Path) -> tuple[Subject, Calibration]:
    """What a calibration file was measured on, and what it holds.

    Raises:
        ConfigError: there is no such file, or it is broken.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"calibration {path}: expected a file, got {error.strerror}; {_REMEDY}"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"calibration {path}: expected whole JSON, got a broken file ({error}); {_REMEDY}"
        ) from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        got = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise ConfigError(f"calibration {path}: expected format {FORMAT}, got {got}; {_REMEDY}")
    measured = _subject(content.get("subject"))
    if measured is None:
        raise ConfigError(f"calibration {path}: expected what it was measured on; {_REMEDY}")
    try:
        cost = CostModel.from_dict(content.get("step_times"))
    except ConfigError as error:
        raise ConfigError(f"calibration {path}: {error}") from error
    provenance = content.get("provenance")
    return measured, Calibration(cost, provenance if isinstance(provenance, dict) else {})


def _subject(data: Any) -> Subject | None:
    names = {field.name for field in fields(Subject)}
    if not isinstance(data, dict) or set(data) != names:
        return None
    if not isinstance(data["capture_sizes"], list):
        return None
    return Subject(**{**data, "capture_sizes": tuple(data["capture_sizes"])})
