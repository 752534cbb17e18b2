"""What every title has to say about where its numbers come from."""

from __future__ import annotations

from typing import Any

from sglang_specv2.benchmark.arms import ARMS, NEVER_OFF
from sglang_specv2.benchmark.workloads import WORKLOADS

CPU_ENGINE, DUMMY_WEIGHTS, SIMULATED = (
    "CPU ENGINE: ITS SPEED MEANS NOTHING",
    "DUMMY WEIGHTS",
    "ACCEPT LENGTH SIMULATED",
)
EXPLANATIONS = {
    CPU_ENGINE: "The CPU engine is for trying the machinery: speeds in this report mean nothing.",
    DUMMY_WEIGHTS: "The weights are random: cost is real, text is not.",
    SIMULATED: "The accept length is simulated: cost is real, acceptance is what was asked for.",
}


def arm_title(name: str, settings: dict[str, Any]) -> str:
    """Of an arm, with the number that it depends on."""
    title = ARMS[name].title
    if name == "threshold":
        return f"{title} {settings['threshold']}"
    if name.startswith("adaptive"):
        return f"{title}, off from {settings['tier_from']}"
    return title


def recovery_title(name: str) -> str:
    """Of an arm of the recovery measure, whose thresholds are its own."""
    return "never off (SGLang)" if name == NEVER_OFF else ARMS[name].title


def _caveats(provenance: dict[str, Any]) -> dict[str, str]:
    settings = provenance["settings"]
    simulated = settings["simulate_accept_length"]
    found = {
        CPU_ENGINE: CPU_ENGINE if settings["cpu"] else None,
        DUMMY_WEIGHTS: DUMMY_WEIGHTS if provenance["dummy_weights"] else None,
        SIMULATED: None if simulated is None else f"{SIMULATED} at {simulated:g}",
    }
    return {kind: words for kind, words in found.items() if words is not None}


def caveats(provenance: dict[str, Any]) -> list[str]:
    """What makes these numbers other than those of real serving; in every title."""
    return list(_caveats(provenance).values())


def explained_caveats(provenance: dict[str, Any]) -> list[str]:
    """The same in sentences."""
    return [EXPLANATIONS[kind] for kind in _caveats(provenance)]


def recovery_caveats(provenance: dict[str, Any]) -> list[str]:
    """Of the recovery measure, whose weights and acceptance are always real."""
    return [words for kind, words in _caveats(provenance).items() if kind == CPU_ENGINE]


def setup(provenance: dict[str, Any]) -> str:
    """Machine, model and load in one line, with the caveats."""
    settings = provenance["settings"]
    workload = WORKLOADS[settings["workload"]]
    output = f"{'up to ' if settings['natural'] else ''}{settings['output_tokens']} tokens out"
    tokens = output if workload.text else f"{settings['prompt_tokens']} tokens in, {output}"
    backend = settings["attention_backend"]
    parts = [
        provenance["gpu_name"] or "no GPU",
        f"{backend} attention" if backend else None,
        provenance["pair"],
        f"{workload.title}: {tokens}",
    ]
    return "; ".join([*filter(None, parts), *caveats(provenance)])


def recovery_setup(provenance: dict[str, Any]) -> str:
    """Machine and model of the recovery measure in one line."""
    machine = provenance["gpu_name"] or "no GPU"
    return "; ".join([machine, provenance["recovery_pair"], *recovery_caveats(provenance)])


def about(level: float) -> str:
    """A level that was interpolated, without digits that it does not have."""
    return f"{level:.0f}" if level >= 10 else f"{level:.1f}"
