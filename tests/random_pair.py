"""A target and an EAGLE-3 draft with random weights, small enough to start in seconds.

They agree on next to nothing, so they test bookkeeping, not acceptance; the trained pair does that.
"""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, MLP, HEADS, KV_HEADS, LAYERS, VOCAB = 64, 128, 4, 2, 4, 256
HEAD_DIM = HIDDEN // HEADS


def make(folder: Path, seed: int = 0) -> tuple[Path, Path]:
    """Writes ``folder/target`` and ``folder/draft`` and returns them."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, scale: float = 0.15) -> Tensor:
        return torch.randn(*shape, generator=generator) * scale

    def layer(prefix: str, attention_in: int) -> dict[str, Tensor]:
        return {
            f"{prefix}.self_attn.q_proj.weight": normal(HEADS * HEAD_DIM, attention_in),
            f"{prefix}.self_attn.k_proj.weight": normal(KV_HEADS * HEAD_DIM, attention_in),
            f"{prefix}.self_attn.v_proj.weight": normal(KV_HEADS * HEAD_DIM, attention_in),
            f"{prefix}.self_attn.o_proj.weight": normal(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.mlp.gate_proj.weight": normal(MLP, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": normal(MLP, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": normal(HIDDEN, MLP),
            f"{prefix}.input_layernorm.weight": torch.ones(HIDDEN),
            f"{prefix}.post_attention_layernorm.weight": torch.ones(HIDDEN),
        }

    head = normal(VOCAB, HIDDEN, scale=0.5)
    target = {
        "model.embed_tokens.weight": normal(VOCAB, HIDDEN, scale=1.0),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": head,
    }
    for index in range(LAYERS):
        target |= layer(f"model.layers.{index}", HIDDEN)
    draft = layer("midlayer", 2 * HIDDEN) | {
        "midlayer.hidden_norm.weight": torch.ones(HIDDEN),
        "fc.weight": normal(HIDDEN, 3 * HIDDEN),
        "norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": head.clone(),
    }
    eagle = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2], "use_aux_hidden_state": True}
    return (
        write(
            folder / "target", target, architectures=["LlamaForCausalLM"], num_hidden_layers=LAYERS
        ),
        write(
            folder / "draft",
            draft,
            architectures=["LlamaForCausalLMEagle3"],
            num_hidden_layers=1,
            draft_vocab_size=VOCAB,
            eagle_config=eagle,
        ),
    )


def write(folder: Path, weights: dict[str, Tensor], **config: object) -> Path:
    """A model folder that SGLang and transformers load."""
    folder.mkdir(parents=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    common = {
        "model_type": "llama",
        "dtype": "float32",
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    (folder / "config.json").write_text(json.dumps(common | config, indent=2) + "\n")
    return folder
