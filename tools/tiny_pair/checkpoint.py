"""Writes and reads the two model folders."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from . import tokenizer
from .model import Draft, Shape, Target

WEIGHTS = "model.safetensors"
SAVED_DTYPE = torch.bfloat16


def round_to_saved(module: nn.Module) -> None:
    """Give the parameters the values that a saved and reloaded model has."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.to(SAVED_DTYPE))


def save_target(target: Target, folder: Path) -> None:
    """config.json, generation_config.json, tokenizer files and weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", target_config(target.shape))
    ids: dict[str, object] = {"bos_token_id": tokenizer.END_ID, "eos_token_id": tokenizer.END_ID}
    generation = {**ids, "pad_token_id": tokenizer.SPECIAL_IDS[tokenizer.PAD], "do_sample": False}
    _write_json(folder / "generation_config.json", generation)
    tokenizer.save(folder, max_positions=target.shape.max_positions)
    _save_weights(target, folder)


def save_draft(draft: Draft, folder: Path) -> None:
    """config.json and weights in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", draft_config(draft.shape))
    _save_weights(draft, folder)


def load_target(folder: Path, shape: Shape, device: torch.device) -> Target:
    """A target saved by save_target, in float32.

    Raises:
        ValueError: the folder's config is not that of `shape`.
    """
    found = json.loads((folder / "config.json").read_text())
    expected = target_config(shape)
    if found != expected:
        differs = sorted(k for k in {*found, *expected} if found.get(k) != expected.get(k))
        raise ValueError(f"{folder}/config.json differs from the asked shape in {differs}")
    target = Target(shape)
    target.load_state_dict(load_file(folder / WEIGHTS))
    return target.to(device)


def target_config(shape: Shape) -> dict[str, object]:
    return {"architectures": ["LlamaForCausalLM"], **_config(shape, shape.num_layers)}


def draft_config(shape: Shape) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        **_config(shape, layers=1),
        "draft_vocab_size": shape.vocab_size,
        "target_hidden_size": shape.hidden_size,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": list(shape.aux_layers),
        },
    }


def _config(shape: Shape, layers: int) -> dict[str, object]:
    return {
        "model_type": "llama",
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.rms_norm_eps,
        # Both spellings: transformers 5 reads rope_parameters, 4 reads rope_theta.
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        "initializer_range": 0.02,
        "bos_token_id": tokenizer.END_ID,
        "eos_token_id": tokenizer.END_ID,
        "pad_token_id": tokenizer.SPECIAL_IDS[tokenizer.PAD],
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }


def _save_weights(module: nn.Module, folder: Path) -> None:
    tensors = {k: v.to("cpu", SAVED_DTYPE).contiguous() for k, v in module.state_dict().items()}
    # Renaming is atomic: a killed run leaves the last complete checkpoint.
    partial = folder / f"{WEIGHTS}.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.chmod(0o644)
    partial.replace(folder / WEIGHTS)


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
