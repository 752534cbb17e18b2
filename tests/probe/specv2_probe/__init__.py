"""A second plugin, for tests: it looks into the scheduler process and plants faults there.

On PYTHONPATH, SGLang loads it in every process. What it does is chosen by environment variables:

=========================== ==================================================================
``SPECV2_PROBE_TRACE``      file that takes one JSON line per decode step (:mod:`.trace`)
``SPECV2_PROBE_SCHEDULE``   file that names the mode of each coming step (:mod:`.schedule`)
``SPECV2_PROBE_DRAFT_KV``   folder that takes the draft's KV cache, step by step (:mod:`.draft_kv`)
``SPECV2_PROBE_FAULT``      a fault to plant, or a file that names it (:mod:`.faults`)
``SPECV2_PROBE_FP32``       1: plain torch for the CUDA kernels that refuse float32 (:mod:`.fp32`)
``SPECV2_PROBE_SYNC_COST``  file that takes the draft sync's cost by plain graph (:mod:`.sync_cost`)
``SPECV2_PROBE_PADDED_GRAPHS`` sizes of the plain graphs to stand in for (:mod:`.padded_graphs`)
``SPECV2_PROBE_PROJECTION`` file that takes how far our K and V are off (:mod:`.projection`)
=========================== ==================================================================
"""

from __future__ import annotations

import importlib
import multiprocessing
import os

PARTS = {
    "SPECV2_PROBE_TRACE": "trace",
    "SPECV2_PROBE_SCHEDULE": "schedule",
    "SPECV2_PROBE_DRAFT_KV": "draft_kv",
    "SPECV2_PROBE_FAULT": "faults",
    "SPECV2_PROBE_FP32": "fp32",
    "SPECV2_PROBE_SYNC_COST": "sync_cost",
    "SPECV2_PROBE_PROJECTION": "projection",
    "SPECV2_PROBE_PADDED_GRAPHS": "padded_graphs",
}


def register() -> None:
    """Entry point of the group ``sglang.srt.plugins``."""
    if multiprocessing.parent_process() is None:
        return  # a launcher; the scheduler is a process that it starts
    for variable, part in PARTS.items():
        value = os.environ.get(variable)
        if value:
            importlib.import_module(f"specv2_probe.{part}").install(value)
