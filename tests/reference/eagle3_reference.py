"""EAGLE-3 chain drafting with nothing cached: what a server's tokens and accept lengths must equal.

Written from the algorithm (https://arxiv.org/abs/2503.01840), in float32. Every forward recomputes
every position, so that no key, value or hidden state can be stale.

Names: x[t] is the token at position t, f[t] the target's three auxiliary hidden states there. The
draft's true row t reads x[t + 1] and f[t] at rotary position t and predicts x[t + 2]. Before a step
x[0 .. L] are known, and f[0 .. L - 1]. The step:

1. Draft d1 from row L - 1. Append a chain row at position L that reads d1 and, in place of f[L],
   the output of row L - 1: it gives d2. One more row for each further draft.
2. Run the target on x[0 .. L], d1 .. dk. Accept the drafts that equal its own choices up to the
   first that differs, and one more token of its choice: the bonus token.
3. Chain rows are dropped. The accepted positions become true rows, with the target's hidden states.

A step that does not speculate adds the target's own choice, and a true row all the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Run:
    """A greedy run.

    Attributes:
        tokens: what was generated, cut to what was asked for.
        accept_lengths: drafts and bonus token of every speculative step, uncut; the first token
            comes from the prompt and belongs to no step.
    """

    tokens: list[int]
    accept_lengths: list[int]

    def histogram(self, drafts: int) -> list[int]:
        """How many speculative steps accepted 0, 1, .. `drafts` drafts."""
        return [self.accept_lengths.count(n + 1) for n in range(drafts + 1)]


@dataclass(frozen=True)
class Pair:
    """Weights and sizes of a target and its draft, float32."""

    target: Weights
    draft: Weights
    heads: int
    kv_heads: int
    head_dim: int
    layers: int
    aux_layers: tuple[int, ...]
    rope_theta: float
    eps: float

    @classmethod
    def load(cls, target_folder: Path | str, draft_folder: Path | str) -> Pair:
        """Read both folders (config.json, *.safetensors)."""
        config, target = _read(Path(target_folder))
        draft_config, draft = _read(Path(draft_folder))
        heads = config["num_attention_heads"]
        return cls(
            target=target,
            draft=draft,
            heads=heads,
            kv_heads=config["num_key_value_heads"],
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            layers=config["num_hidden_layers"],
            aux_layers=tuple(draft_config["eagle_config"]["eagle_aux_hidden_state_layer_ids"]),
            rope_theta=config.get("rope_theta") or config["rope_parameters"]["rope_theta"],
            eps=config["rms_norm_eps"],
        )


def generate(
    pair: Pair,
    prompt: Sequence[int],
    new_tokens: int,
    *,
    drafts: int = 2,
    speculate: Callable[[int], bool] = lambda step: True,
    stop_ids: Sequence[int] = (),
    chain_position_error: int = 0,
) -> Run:
    """Generate greedily with chain drafting (topk 1).

    Args:
        prompt: token ids, at least one.
        new_tokens: the largest number of tokens to return.
        drafts: tokens drafted a step (`speculative_num_steps`).
        speculate: whether the n-th step after the prompt's, counted from 0, speculates.
        stop_ids: the run ends with the first of these.
        chain_position_error: added to the positions of chain rows, to show that a test notices.
    """
    tokens = list(prompt)
    logits, aux = run_target(pair, tokens)
    tokens.append(int(logits[-1].argmax()))
    accept_lengths: list[int] = []
    step = 0
    while not _ended(tokens[len(prompt) :], new_tokens, stop_ids):
        drafted: list[int] = []
        if speculate(step):
            drafted = draft_chain(pair, tokens, aux, drafts, chain_position_error)
        known = len(tokens)
        logits, aux = run_target(pair, tokens + drafted)
        choices = logits[known - 1 :].argmax(-1).tolist()
        accepted = 0
        while accepted < len(drafted) and drafted[accepted] == choices[accepted]:
            accepted += 1
        tokens += choices[: accepted + 1]
        aux = aux[: known + accepted]
        if drafted:
            accept_lengths.append(accepted + 1)
        step += 1
    return Run(_cut(tokens[len(prompt) :], new_tokens, stop_ids), accept_lengths)


def run_target(pair: Pair, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Logits [T, vocab] and auxiliary hidden states [T, 3 H] of all positions."""
    weights = pair.target
    positions = torch.arange(len(tokens))
    x = weights["model.embed_tokens.weight"][torch.tensor(tokens)]
    captured = []
    for i in range(pair.layers):
        layer = _below(weights, f"model.layers.{i}.")
        rows = _norm(pair, x, layer["input_layernorm.weight"])
        x = x + _attention(pair, layer, rows, positions)
        x = x + _mlp(layer, _norm(pair, x, layer["post_attention_layernorm.weight"]))
        if i in pair.aux_layers:
            captured.append(x)
    return _norm(pair, x, weights["model.norm.weight"]) @ _head(weights), torch.cat(captured, -1)


def draft_chain(
    pair: Pair, tokens: Sequence[int], aux: Tensor, drafts: int, position_error: int = 0
) -> list[int]:
    """Tokens drafted behind x[0 .. L].

    Args:
        tokens: x[0 .. L].
        aux: [L, 3 H], f[0 .. L - 1].
    """
    true_rows = len(tokens) - 1
    read = list(tokens[1:])
    hidden = aux @ pair.draft["fc.weight"].T
    positions = torch.arange(true_rows)
    drafted: list[int] = []
    while True:
        last, output = _run_draft(pair, read, hidden, positions)
        drafted.append(last)
        if len(drafted) == drafts:
            return drafted
        read.append(last)
        hidden = torch.cat((hidden, output[None]))
        chain_position = true_rows + len(drafted) - 1 + position_error
        positions = torch.cat((positions, torch.tensor([chain_position])))


def _run_draft(
    pair: Pair, read: Sequence[int], hidden: Tensor, positions: Tensor
) -> tuple[int, Tensor]:
    """The last row's proposal and its hidden state [H] before the final norm."""
    layer = _below(pair.draft, "midlayer.")
    embeds = pair.target["model.embed_tokens.weight"][torch.tensor(read)]
    rows = torch.cat(
        (
            _norm(pair, embeds, layer["input_layernorm.weight"]),
            _norm(pair, hidden, layer["hidden_norm.weight"]),
        ),
        dim=-1,
    )
    out = hidden[-1:] + _attention(pair, layer, rows, positions, last_only=True)
    out = out + _mlp(layer, _norm(pair, out, layer["post_attention_layernorm.weight"]))
    logits = _norm(pair, out, pair.draft["norm.weight"]) @ _head(pair.draft)
    return int(logits[0].argmax()), out[0]


def _attention(
    pair: Pair, layer: Weights, rows: Tensor, positions: Tensor, *, last_only: bool = False
) -> Tensor:
    """Causal attention in the order of the rows; [T, H], or [1, H] for the last row alone."""
    asking = rows[-1:] if last_only else rows
    asking_positions = positions[-1:] if last_only else positions
    q = _split(asking @ layer["self_attn.q_proj.weight"].T, pair.heads)
    k = _split(rows @ layer["self_attn.k_proj.weight"].T, pair.kv_heads)
    v = _split(rows @ layer["self_attn.v_proj.weight"].T, pair.kv_heads)
    q, k = _rotate(pair, q, asking_positions), _rotate(pair, k, positions)
    shared = pair.heads // pair.kv_heads
    k, v = k.repeat_interleave(shared, 0), v.repeat_interleave(shared, 0)
    scores = q @ k.transpose(1, 2) * pair.head_dim**-0.5
    if not last_only:
        hidden_from = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden_from, float("-inf"))
    mixed = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
    return mixed @ layer["self_attn.o_proj.weight"].T


def _rotate(pair: Pair, x: Tensor, positions: Tensor) -> Tensor:
    """Rotate x [heads, T, D]; the pairs are (i, i + D / 2)."""
    half = pair.head_dim // 2
    frequencies = pair.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None] * frequencies
    a, b = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _mlp(layer: Weights, x: Tensor) -> Tensor:
    gate = x @ layer["mlp.gate_proj.weight"].T
    up = x @ layer["mlp.up_proj.weight"].T
    return (gate * gate.sigmoid() * up) @ layer["mlp.down_proj.weight"].T


def _norm(pair: Pair, x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + pair.eps) * weight


def _split(x: Tensor, heads: int) -> Tensor:
    """[T, heads D] -> [heads, T, D]."""
    return x.view(len(x), heads, -1).transpose(0, 1)


def _head(weights: Weights) -> Tensor:
    return weights["lm_head.weight"].T


def _below(weights: Weights, prefix: str) -> Weights:
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


def _read(folder: Path) -> tuple[dict, Weights]:
    weights: Weights = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= {name: tensor.float() for name, tensor in load_file(path).items()}
    return json.loads((folder / "config.json").read_text()), weights


def _ended(generated: Sequence[int], new_tokens: int, stop_ids: Sequence[int]) -> bool:
    return len(generated) >= new_tokens or any(token in stop_ids for token in generated)


def _cut(generated: list[int], new_tokens: int, stop_ids: Sequence[int]) -> list[int]:
    for i, token in enumerate(generated):
        if token in stop_ids:
            return generated[: min(i + 1, new_tokens)]
    return generated[:new_tokens]
