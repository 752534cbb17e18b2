"""Which draft sync a draft gets, and why; shared by the worker and ``doctor``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sglang_specv2.errors import ConfigError

KV_ARCHITECTURES = {
    "LlamaForCausalLMEagle3": "EAGLE-3 Llama",
    "LlamaForCausalLMEagle": "EAGLE Llama",
    "Qwen2ForCausalLMEagle": "EAGLE Qwen2",
}
"""Drafts whose K and V are a function of the next token's embedding and the target's hidden state
alone, by the SGLang class that runs them."""


@dataclass(frozen=True)
class SyncChoice:
    """The mode a server runs with (``kv``, ``extend`` or ``off``) and the reason in words."""

    mode: str
    reason: str


def reason_against_kv(draft_config: Mapping[str, Any]) -> str | None:
    """Why a draft cannot have K and V written without running it; None when it can.

    Args:
        draft_config: the draft's ``config.json`` as a mapping.
    """
    architecture = (draft_config.get("architectures") or ["unknown"])[0]
    if architecture not in KV_ARCHITECTURES:
        known = ", ".join(sorted(KV_ARCHITECTURES))
        return (
            f"architecture {architecture} is not one whose K and V are known to need no attention "
            f"({known})"
        )
    layers = draft_config.get("num_hidden_layers", 1)
    if layers != 1:
        return f"the draft has {layers} layers; K and V of the later ones depend on attention"
    if draft_config.get("quantization_config"):
        return "the draft's projections are quantized; their K and V rows cannot be split off"
    scaling = draft_config.get("rope_parameters") or draft_config.get("rope_scaling") or {}
    if "mrope_section" in scaling:
        return "the draft uses multimodal rotary positions"
    return None


def choose(requested: str, against_kv: str | None) -> SyncChoice:
    """Resolve ``--speculative-draft-sync`` for a draft.

    Args:
        requested: ``auto``, ``kv``, ``extend`` or ``off``.
        against_kv: the reason the draft cannot have ``kv``, or None.

    Raises:
        ConfigError: ``kv`` was asked for and the draft cannot have it.
    """
    if requested == "kv" and against_kv:
        raise ConfigError(
            "--speculative-draft-sync kv: expected a draft whose K and V can be written alone, got "
            f"one where {against_kv}. Use auto or extend."
        )
    if requested in ("extend", "off"):
        return SyncChoice(requested, "as asked for")
    if against_kv:
        return SyncChoice("extend", against_kv)
    return SyncChoice(
        "kv", "one layer, and K and V need only the next token and the target's hidden state"
    )


def explain_mode(draft_config: Mapping[str, Any], requested: str = "auto") -> tuple[str, str]:
    """``(mode, reason)`` for a draft's ``config.json``; see :func:`choose`."""
    choice = choose(requested, reason_against_kv(draft_config))
    return choice.mode, choice.reason
