"""The models that the arms serve: a given pair, the bundled one, or a shape with dummy weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sglang_specv2 import cpu
from sglang_specv2.errors import ConfigError

_LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 16384,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_LLAMA_1B = {
    **_LLAMA_8B,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "head_dim": 64,
}
_TINY = {
    **_LLAMA_8B,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
}
SHAPES: dict[str, dict[str, Any]] = {"llama-8b": _LLAMA_8B, "llama-1b": _LLAMA_1B, "tiny": _TINY}
"""Target configurations; ``tiny`` is for trying the machinery out."""

_AUXILIARY_LAYERS = {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}
_DRAFT_VOCABULARY = 32000


@dataclass(frozen=True)
class Pair:
    """A target and its draft.

    Attributes:
        title: in tables and figures.
        dummy: whether the weights are random.
    """

    title: str
    target: str
    draft: str
    dummy: bool = False

    @property
    def flags(self) -> list[str]:
        """Of every arm."""
        return ["--model-path", self.target, *(["--load-format", "dummy"] if self.dummy else [])]

    @property
    def draft_flags(self) -> list[str]:
        """Of the arms that speculate."""
        load = ["--speculative-draft-load-format", "dummy"] if self.dummy else []
        return ["--speculative-draft-model-path", self.draft, *load]

    @property
    def context_tokens(self) -> int | None:
        """The target's longest sequence, where its configuration is a file here."""
        return self._configured("max_position_embeddings")

    @property
    def vocabulary_size(self) -> int | None:
        """The target's, where its configuration is a file here."""
        return self._configured("vocab_size")

    def _configured(self, key: str) -> int | None:
        config = Path(self.target) / "config.json"
        if not config.is_file():
            return None
        value = json.loads(config.read_text(encoding="utf-8")).get(key)
        return None if value is None else int(value)


def bundled() -> Pair:
    """The byte-level pair that is part of this package."""
    target, draft = cpu.bundled_pair()
    return Pair("bundled byte-level pair (3 M parameters)", str(target), str(draft))


def shaped(shape: str, folder: Path) -> Pair:
    """Writes configurations and a tokenizer for a shape; the weights are made up when served.

    The tokenizer has a word for each id, so that clients which read text can count tokens.

    Raises:
        ConfigError: no shape of that name.
    """
    if shape not in SHAPES:
        raise ConfigError(f"--shape {shape}: expected one of {', '.join(SHAPES)}")
    config = SHAPES[shape]
    draft_config = {
        **config,
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": min(_DRAFT_VOCABULARY, config["vocab_size"]),
    }
    if config["num_hidden_layers"] < 8:
        # The three layers that an EAGLE-3 draft reads by default would coincide.
        draft_config["eagle_config"] = _AUXILIARY_LAYERS
    target, draft = folder / shape, folder / f"{shape}-eagle3"
    _write_json(target / "config.json", config)
    _write_json(draft / "config.json", draft_config)
    _write_json(target / "generation_config.json", {"bos_token_id": 1, "eos_token_id": 2})
    _write_tokenizer(target, config["vocab_size"])
    return Pair(f"{shape} shape", str(target), str(draft), dummy=True)


def _write_json(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value) + "\n", encoding="utf-8")


def _write_tokenizer(folder: Path, size: int) -> None:
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"t{i}": i for i in range(3, size)}
    tokenizer: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }
    _write_json(folder / "tokenizer.json", tokenizer)
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": _LLAMA_8B["max_position_embeddings"],
        },
    )


def choose(shape: str | None, model: str | None, draft: str | None, folder: Path) -> Pair:
    """The pair that was asked for; without any, the bundled one.

    Raises:
        ConfigError: a shape and a model, or a model without its draft, or the other way round.
    """
    if shape is not None:
        if model is not None or draft is not None:
            raise ConfigError(f"--shape {shape} and --model or --draft: expected one of them")
        return shaped(shape, folder)
    if (model is None) != (draft is None):
        raise ConfigError("expected --model and --draft together, a target and its EAGLE-3 draft")
    if model is None or draft is None:
        return bundled()
    return Pair(_short(model), model, draft)


def _short(model: str) -> str:
    return Path(model).name if Path(model).exists() else model
