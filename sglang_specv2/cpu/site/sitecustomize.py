"""Installs the CPU engine before the first line of a process; see :mod:`sglang_specv2.cpu`.

Python imports the first ``sitecustomize`` on its search path by itself at start. One that belongs
to the environment still runs.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_ROOT = str(_HERE.parents[2])


def _run_the_environments_own() -> None:
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


_run_the_environments_own()

if os.environ.get("SGLANG_SPECV2_CPU") == "1":
    if _ROOT not in sys.path:
        sys.path.append(_ROOT)
    from sglang_specv2 import cpu

    cpu.install()
