"""Random-weight pairs whose drafts differ in what their K and V are computed from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from random_pair import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, MLP, VOCAB, write
from torch import Tensor

Weights = dict[str, Tensor]


class PairWriter:
    """Writes targets and drafts into a folder; weights come from one seeded generator."""

    def __init__(self, folder: Path, seed: int = 3) -> None:
        self._folder = folder
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 0.15) -> Tensor:
        return torch.randn(*shape, generator=self._generator) * scale

    def norm(self, size: int = HIDDEN) -> Tensor:
        return 1.0 + self.normal(size, scale=0.3)

    def layer(self, prefix: str, attention_in: int = HIDDEN, bias: bool = False) -> Weights:
        sizes = {"q": HEADS * HEAD_DIM, "k": KV_HEADS * HEAD_DIM, "v": KV_HEADS * HEAD_DIM}
        weights = {
            f"{prefix}.self_attn.o_proj.weight": self.normal(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.mlp.gate_proj.weight": self.normal(MLP, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": self.normal(MLP, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": self.normal(HIDDEN, MLP),
            f"{prefix}.input_layernorm.weight": self.norm(),
            f"{prefix}.post_attention_layernorm.weight": self.norm(),
        }
        for name, size in sizes.items():
            weights[f"{prefix}.self_attn.{name}_proj.weight"] = self.normal(size, attention_in)
            if bias:
                weights[f"{prefix}.self_attn.{name}_proj.bias"] = self.normal(size)
        return weights

    def target(self, name: str, bias: bool = False, **config: Any) -> Path:
        weights = {
            "model.embed_tokens.weight": self.normal(VOCAB, HIDDEN, scale=1.0),
            "model.norm.weight": self.norm(),
            "lm_head.weight": self.normal(VOCAB, HIDDEN, scale=0.5),
        }
        for index in range(LAYERS):
            weights |= self.layer(f"model.layers.{index}", bias=bias)
        return write(self._folder / name, weights, num_hidden_layers=LAYERS, **config)

    def draft(self, name: str, weights: Weights, **config: Any) -> Path:
        return write(self._folder / name, weights, num_hidden_layers=1, **config)

    def eagle3(self, extra: Weights, aux: int = 3, draft_vocab: int = VOCAB, **config: Any) -> Path:
        weights = self.layer("midlayer", 2 * HIDDEN) | {
            "midlayer.hidden_norm.weight": self.norm(),
            "fc.weight": self.normal(HIDDEN, aux * HIDDEN),
            "norm.weight": self.norm(),
            "lm_head.weight": self.normal(draft_vocab, HIDDEN, scale=0.5),
        }
        eagle = {"eagle_aux_hidden_state_layer_ids": list(range(aux)), "use_aux_hidden_state": True}
        return self.draft(
            "draft",
            weights | extra,
            architectures=["LlamaForCausalLMEagle3"],
            draft_vocab_size=draft_vocab,
            eagle_config=eagle | config.pop("eagle_config", {}),
            **config,
        )

    def eagle(self, architecture: str, bias: bool = False, **config: Any) -> Path:
        weights = self.layer("layers.0", bias=bias) | {
            "fc.weight": self.normal(HIDDEN, 2 * HIDDEN),
            "fc.bias": self.normal(HIDDEN),
        }
        del weights["layers.0.input_layernorm.weight"]
        return self.draft("draft", weights, architectures=[architecture], **config)


def _llama3(writer: PairWriter, draft: Path) -> tuple[str, Path, Path]:
    return "EAGLE3", writer.target("target", architectures=["LlamaForCausalLM"]), draft


def eagle3(writer: PairWriter) -> tuple[str, Path, Path]:
    return _llama3(writer, writer.eagle3({}))


def eagle3_fc_norm(writer: PairWriter) -> tuple[str, Path, Path]:
    norms = {f"fc_norm.{index}.weight": writer.norm() for index in range(3)}
    return _llama3(writer, writer.eagle3(norms, fc_norm=True))


def eagle3_norm_before_fc(writer: PairWriter) -> tuple[str, Path, Path]:
    norm = {"input_norm.weight": writer.norm(3 * HIDDEN)}
    return _llama3(writer, writer.eagle3(norm, eagle_config={"norm_before_fc": True}))


def eagle3_two_aux_layers(writer: PairWriter) -> tuple[str, Path, Path]:
    return _llama3(writer, writer.eagle3({}, aux=2, num_aux_hidden_states=2))


def eagle3_draft_vocabulary(writer: PairWriter) -> tuple[str, Path, Path]:
    half = VOCAB // 2
    # d2t holds, for each draft token, how far its target token lies above it.
    tables = {"d2t": torch.arange(half), "t2d": torch.arange(VOCAB) % 2 == 0}
    return _llama3(writer, writer.eagle3(tables, draft_vocab=half))


def eagle_llama(writer: PairWriter) -> tuple[str, Path, Path]:
    target = writer.target("target", architectures=["LlamaForCausalLM"])
    return "EAGLE", target, writer.eagle("LlamaForCausalLMEagle")


def eagle_qwen2(writer: PairWriter) -> tuple[str, Path, Path]:
    target = writer.target(
        "target", bias=True, architectures=["Qwen2ForCausalLM"], model_type="qwen2"
    )
    return "EAGLE", target, writer.eagle("Qwen2ForCausalLMEagle", bias=True, model_type="qwen2")


VARIANTS: tuple[Callable[[PairWriter], tuple[str, Path, Path]], ...] = (
    eagle3,
    eagle3_fc_norm,
    eagle3_norm_before_fc,
    eagle3_two_aux_layers,
    eagle3_draft_vocabulary,
    eagle_llama,
    eagle_qwen2,
)
"""Each writes its pair and returns (algorithm, target folder, draft folder)."""
