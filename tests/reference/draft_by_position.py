"""What a draft that was never off does at every position of a greedy text, all positions at once.

A draft whose KV cache is right depends on the text alone. So for a known text x[0 .. T - 1] each
step of a server can be predicted from the position L that it begins with, whatever ran before it:
known are x[0 .. L], the draft's true rows 0 .. L - 1 and, from them, its chain of drafts. Names are
those of :mod:`eagle3_reference`, from which this differs only in that it shares work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from eagle3_reference import Pair, run_target
from torch import Tensor
from torch.nn.functional import rms_norm, silu


@dataclass(frozen=True)
class DraftOfText:
    """The draft of one text of T tokens.

    Attributes:
        accepted: by position L, tokens that a speculative step gains there: accepted drafts and the
            bonus token. None where it cannot be told: at L = 0, where the text ends too early, or
            where the two likeliest drafts are so close that rounding may choose.
        k, v: true row by position, [T - 1, kv heads, head dim], float32.
    """

    accepted: list[int | None]
    k: Tensor
    v: Tensor


def draft_of(pair: Pair, tokens: Sequence[int], drafts: int, margin: float = 1e-3) -> DraftOfText:
    """Run the draft once over all of ``tokens``, which must be the target's greedy text behind the
    prompt. ``margin`` is the least distance of two logits that rounding cannot turn around."""
    x = torch.tensor(tokens)
    _, aux = run_target(pair, tokens)
    draft = _Draft(pair)
    hidden = aux[:-1] @ pair.draft["fc.weight"].T
    rows = draft.rows(x[1:], hidden, torch.arange(len(x) - 1))
    causal = torch.ones(len(hidden), len(hidden), dtype=torch.bool).tril()
    output = hidden + draft.attend(rows, [(rows, causal)])
    output = output + draft.mlp(output)

    # From here on row i belongs to L = i + 1.
    starts = torch.arange(1, len(x))
    known = [(rows, causal)]
    gained = torch.ones(len(starts), dtype=torch.long)
    certain = torch.ones(len(starts), dtype=torch.bool)
    matching = torch.ones(len(starts), dtype=torch.bool)
    for n in range(1, drafts + 1):
        best = draft.logits(output).topk(2)
        drafted = best.indices[:, 0]
        certain &= ~matching | (best.values[:, 0] - best.values[:, 1] > margin)
        ahead = torch.full_like(drafted, -1)
        ahead[: len(x) - 1 - n] = x[1 + n :]
        certain &= ~matching | (ahead >= 0)
        matching &= drafted == ahead
        gained += matching
        if n < drafts:
            chain = draft.rows(drafted, output, starts + n - 1)
            known.append((chain, torch.eye(len(starts), dtype=torch.bool)))
            output = output + draft.attend(chain, known)
            output = output + draft.mlp(output)
    accepted = [None, *(int(g) if c else None for g, c in zip(gained, certain, strict=True))]
    return DraftOfText(accepted, rows.k.transpose(0, 1), rows.v.transpose(0, 1))


@dataclass(frozen=True)
class _Rows:
    """Queries [heads, n, D], keys and values [kv heads, n, D] of n rows, rotated."""

    q: Tensor
    k: Tensor
    v: Tensor


class _Draft:
    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._layer = {
            name.removeprefix("midlayer."): weight
            for name, weight in pair.draft.items()
            if name.startswith("midlayer.")
        }

    def rows(self, reads: Tensor, hidden: Tensor, positions: Tensor) -> _Rows:
        embeds = self._pair.target["model.embed_tokens.weight"][reads]
        inputs = torch.cat(
            (
                self._norm(embeds, self._layer["input_layernorm.weight"]),
                self._norm(hidden, self._layer["hidden_norm.weight"]),
            ),
            dim=-1,
        )

        def heads(name: str) -> Tensor:
            projected = inputs @ self._layer[f"self_attn.{name}.weight"].T
            return projected.unflatten(-1, (-1, self._pair.head_dim)).transpose(0, 1)

        return _Rows(
            self._rotate(heads("q_proj"), positions),
            self._rotate(heads("k_proj"), positions),
            heads("v_proj"),
        )

    def attend(self, asking: _Rows, known: list[tuple[_Rows, Tensor]]) -> Tensor:
        """[n, H]; ``known`` holds rows and which of them each asking row sees, [n, rows]."""
        shared = self._pair.heads // self._pair.kv_heads
        k = torch.cat([rows.k for rows, _ in known], 1).repeat_interleave(shared, 0)
        v = torch.cat([rows.v for rows, _ in known], 1).repeat_interleave(shared, 0)
        seen = torch.cat([mask for _, mask in known], 1)
        scores = asking.q @ k.transpose(1, 2) * self._pair.head_dim**-0.5
        mixed = scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v
        return mixed.transpose(0, 1).flatten(1) @ self._layer["self_attn.o_proj.weight"].T

    def mlp(self, x: Tensor) -> Tensor:
        x = self._norm(x, self._layer["post_attention_layernorm.weight"])
        gate = silu(x @ self._layer["mlp.gate_proj.weight"].T)
        up = x @ self._layer["mlp.up_proj.weight"].T
        return (gate * up) @ self._layer["mlp.down_proj.weight"].T

    def logits(self, output: Tensor) -> Tensor:
        draft = self._pair.draft
        return self._norm(output, draft["norm.weight"]) @ draft["lm_head.weight"].T

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(x, weight.shape, weight, self._pair.eps)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [heads, n, D]; the pairs are (i, i + D / 2)."""
        half = self._pair.head_dim // 2
        exponents = torch.arange(half, dtype=torch.float32) / half
        angles = positions[:, None] * self._pair.rope_theta**-exponents
        a, b = x[..., :half], x[..., half:]
        return torch.cat(
            (a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), -1
        )
