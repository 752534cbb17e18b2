"""Features of SGLang that dynamic speculation is not built for, and what to do instead.

A gate looks at SGLang's arguments, one at a variable, and returns why this server cannot have
dynamic speculation, or None. The launcher, the choice of the worker and ``doctor`` all use these
words. Arguments may be a resolved ``ServerArgs`` or the namespace of its parser; an absent
attribute counts as not used.

Trees (``--speculative-eagle-topk`` above 1) pass: a plain step knows no tree.
"""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from sglang_specv2.config import given_options, settings
from sglang_specv2.errors import UnsupportedError

logger = logging.getLogger(__name__)

EAGLE_ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN")

_OTHER_ALGORITHMS = {
    "STANDALONE": "a stand-alone draft model keeps a KV cache that plain steps would not fill",
    "NGRAM": "it drafts without a draft model, by a worker of its own",
    "FROZEN_KV_MTP": "its draft reads the target's KV cache, by a worker of its own",
    "DFLASH": "it drafts whole blocks, by a worker of its own",
    "DSPARK": "it drafts whole blocks, by a worker of its own",
}

_PLAN_STREAM = "SGLANG_ENABLE_OVERLAP_PLAN_STREAM"

Gate = Callable[[Any], str | None]


def algorithm(args: Any) -> str | None:
    """Any speculation but EAGLE's."""
    name = getattr(args, "speculative_algorithm", None)
    if name is None:
        return "no --speculative-algorithm: this server does not speculate; give EAGLE or EAGLE3"
    if name.upper() in EAGLE_ALGORITHMS:
        return None
    why = _OTHER_ALGORITHMS.get(name.upper(), "its worker is not EAGLE's")
    return f"--speculative-algorithm {name}: {why}; use EAGLE or EAGLE3 with a draft of that kind"


def multi_layer_eagle(args: Any) -> str | None:
    if getattr(args, "enable_multi_layer_eagle", False):
        return (
            "--enable-multi-layer-eagle (SGLang sets it by itself for some models): its worker "
            "keeps one draft state per layer, which plain steps would not keep; use a single-layer "
            "EAGLE draft"
        )
    return None


def adaptive(args: Any) -> str | None:
    """SGLang's own adaptation of the number of steps."""
    if getattr(args, "speculative_adaptive", False):
        return (
            "--speculative-adaptive: two policies would switch the same graphs; leave it out, or "
            "leave out the options of sglang-specv2"
        )
    return None


def data_parallel_attention(args: Any) -> str | None:
    if getattr(args, "enable_dp_attention", False):
        return (
            "--enable-dp-attention: its ranks run one forward on different batches, and would have "
            "to agree on the mode at every step; use tensor parallelism, or several servers"
        )
    return None


def pipeline_parallel(args: Any) -> str | None:
    if getattr(args, "pp_size", 1) > 1:
        return (
            f"--pipeline-parallel-size {args.pp_size}: a mode would have to follow its micro-batch "
            "through the stages; use tensor parallelism"
        )
    return None


def two_batch_overlap(args: Any) -> str | None:
    if getattr(args, "enable_two_batch_overlap", False):
        return (
            "--enable-two-batch-overlap: it splits a step in two halves that the plain graphs are "
            "not captured for; leave it out"
        )
    return None


def pd_multiplexing(args: Any) -> str | None:
    if getattr(args, "enable_pdmux", False):
        return (
            "--enable-pdmux: it runs decode on streams and attention backends of its own; leave it "
            "out"
        )
    return None


def plan_stream(args: Any) -> str | None:
    """Switched on by a variable."""
    if os.environ.get(_PLAN_STREAM, "").lower() not in ("true", "1", "yes", "y"):
        return None
    return (
        f"{_PLAN_STREAM}: a verify is planned on a stream that does not wait for the lengths of a "
        "plain step, which are told early; unset it"
    )


def disaggregation(args: Any) -> str | None:
    mode = getattr(args, "disaggregation_mode", "null")
    if mode != "null":
        return (
            f"--disaggregation-mode {mode}: draft state would have to travel with requests that "
            "were decoded plainly; serve prefill and decode together"
        )
    return None


def recurrent_state(args: Any) -> str | None:
    """Models with Mamba or linear-attention layers."""
    model_config = _model_config(args)
    if model_config is None:
        return None
    from sglang.srt.configs.hybrid_arch import mambaish_config

    if mambaish_config(model_config) is None:
        return None
    return (
        f"{_architecture(model_config)} keeps recurrent state (Mamba or linear attention), which "
        "verify and plain steps advance in different ways; leave out the options of sglang-specv2"
    )


def hybrid_sliding_window(args: Any) -> str | None:
    """Models whose sliding-window layers have a KV pool of their own."""
    model_config = _model_config(args)
    if model_config is None or not getattr(model_config, "is_hybrid_swa", False):
        return None
    return (
        f"{_architecture(model_config)} keeps two KV pools (sliding window and full), which plain "
        "steps do not know; give --disable-hybrid-swa-memory, or leave out the options of "
        "sglang-specv2"
    )


def multimodal_rotary(args: Any) -> str | None:
    """Targets whose positions have three parts (Qwen2-VL and the like)."""
    model_config = _model_config(args)
    if model_config is None or not getattr(model_config, "model_is_mrope", False):
        return None
    return (
        f"{_architecture(model_config)} uses multimodal rotary positions, which a plain step would "
        "have to compute on the host and wait for; leave out the options of sglang-specv2"
    )


GATES: tuple[Gate, ...] = (
    algorithm,
    multi_layer_eagle,
    adaptive,
    data_parallel_attention,
    pipeline_parallel,
    two_batch_overlap,
    pd_multiplexing,
    plan_stream,
    disaggregation,
    recurrent_state,
    hybrid_sliding_window,
    multimodal_rotary,
)


def reasons(args: Any) -> list[str]:
    """Every reason why this server cannot have dynamic speculation; empty when it can."""
    return [reason for gate in GATES if (reason := gate(args)) is not None]


def unknown_worker(worker: type) -> str:
    """The reason for a worker class that no gate foresaw, such as another plugin's."""
    return (
        f"SGLang chose the worker {worker.__module__}.{worker.__qualname__}, where EAGLEWorkerV2 "
        "was expected; look for another plugin that replaces it"
    )


def refuse_or_leave(args: Any, found: list[str], environ: Mapping[str, str] | None = None) -> None:
    """Raises if dynamic speculation was asked for; otherwise leaves the server to SGLang, and logs.

    A server that does not speculate at all is refused for options given to it, not for variables,
    which may be meant for other servers of the same environment.

    Args:
        args: SGLang's arguments.
        found: what :func:`reasons` returned; nothing happens when empty.
        environ: the environment to read; the process's own by default.

    Raises:
        UnsupportedError: names the options, every reason, and the ways out.
    """
    if not found:
        return
    options = given_options(args)
    asked = [setting.source for setting in settings(options, environ).values()]
    speculates = getattr(args, "speculative_algorithm", None) is not None
    if asked and (speculates or options):
        raise UnsupportedError(
            f"{', '.join(asked)}: dynamic speculation cannot be had here.\n  - "
            + "\n  - ".join(found)
        )
    if asked or speculates:
        logger.warning(
            "sglang-specv2 leaves this server to SGLang's own worker: %s.", "; ".join(found)
        )


def _model_config(args: Any) -> Any:
    return vars(args).get("model_config")


def _architecture(model_config: Any) -> str:
    return str(model_config.hf_config.architectures[0])
