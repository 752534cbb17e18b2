"""Where numbers come from: machine, versions, options and commands."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from sglang_specv2.benchmark.pairs import Pair
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.telemetry import GpuMeter
from sglang_specv2.commit import ROOT, commit
from sglang_specv2.version import __version__

_PACKAGES = ("sglang", "torch", "sglang-kernel", "flashinfer-python", "triton", "transformers")
_VARIABLES = ("SGLANG_", "CUDA_", "NVIDIA_", "TORCH", "OMP_NUM_THREADS")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def collect(
    settings: Settings,
    pair: Pair,
    recovery_pair: Pair,
    meter: GpuMeter | None,
    client: str,
    client_reason: str,
    note: str | None,
) -> dict[str, Any]:
    """The content of ``provenance.json`` for a run that starts now; ``runs`` holds this one."""
    gpu = None if meter is None else meter.description()
    return {
        "pair": pair.title,
        "recovery_pair": recovery_pair.title,
        "dummy_weights": pair.dummy,
        "gpu_name": None if gpu is None else gpu["name"],
        "versions": versions(),
        "commit": commit(),
        "settings": settings.as_dict(),
        "runs": [
            {
                "began": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "command": shlex.join(["sglang-specv2", *sys.argv[1:]]),
                "note": note,
                "environment": environment(os.environ),
                "gpu": gpu,
                "cpu": {"cores": os.cpu_count(), "machine": platform.machine()},
                "system": platform.platform(),
                "client": client,
                "client_reason": client_reason,
                "settings": settings.as_dict(),
            }
        ],
    }


def versions() -> dict[str, str | None]:
    """Of Python, of this package, and of what the figures depend on; None where not installed."""
    found: dict[str, str | None] = {
        "python": platform.python_version(),
        "sglang-specv2": __version__,
    }
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that change what a server does; never all, since some hold secrets."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if name.startswith(_VARIABLES) and not any(word in name for word in _SECRET)
    }


def shown(command: Sequence[str], env: Mapping[str, str]) -> str:
    """A command to paste into a shell at the root of the clone, where Python is ``python``."""
    told = {name: value for name, value in env.items() if not name.startswith("PYTHON")}
    assignments = [f"{name}={shlex.quote(value)}" for name, value in told.items()]
    arguments = [part.removeprefix(f"{ROOT}{os.sep}") for part in command[1:]]
    return " ".join([*assignments, "python", shlex.join(arguments)])
