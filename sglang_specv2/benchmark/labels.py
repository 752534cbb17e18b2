"""What every title has to say about where its numbers come from."""

from __future__ import annotations

from typing import Any

from sglang_specv2.benchmark.arms import ARMS
from sglang_specv2.benchmark.workloads import WORKLOADS


def arm_title(name: str, settings: dict[str, Any]) -> str:
    """Of an arm, with the number that it depends on."""
    title = ARMS[name].title
    if name == "threshold":
        return f"{title} {settings['threshold']}"
    if name.startswith("adaptive"):
        return f"{title} from {settings['tier_from']}"
    return title


def caveats(provenance: dict[str, Any]) -> list[str]:
    """What makes these numbers other than those of real serving; in every title."""
    settings = provenance["settings"]
    found = []
    if settings["cpu"]:
        found.append("CPU ENGINE: ITS SPEED MEANS NOTHING")
    if provenance["dummy_weights"]:
        found.append("DUMMY WEIGHTS")
    if settings["simulate_accept_length"] is not None:
        found.append(f"ACCEPT LENGTH SIMULATED at {settings['simulate_accept_length']:g}")
    return found


def setup(provenance: dict[str, Any]) -> str:
    """Machine, model and load in one line, with the caveats."""
    settings = provenance["settings"]
    workload = WORKLOADS[settings["workload"]].title
    length = f"{'up to ' if settings['natural'] else ''}{settings['output_tokens']} tokens out"
    if settings["workload"] == "random":
        length = f"{settings['prompt_tokens']} in, {length}"
    parts = [
        provenance["gpu_name"] or "no GPU",
        settings["attention_backend"] and f"{settings['attention_backend']} attention",
        provenance["pair"].replace(", DUMMY WEIGHTS", ""),
        f"{workload}: {length}",
    ]
    return "; ".join([*filter(None, parts), *caveats(provenance)])
