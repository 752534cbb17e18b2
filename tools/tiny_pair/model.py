"""The target and the draft in plain torch, with the parameter names their checkpoints use.

The target is Hugging Face's LlamaForCausalLM; the draft is the one-layer EAGLE-3 Llama that
SGLang loads as LlamaForCausalLMEagle3 (https://arxiv.org/abs/2503.01840).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Sizes of a target; its draft shares all of them but the number of layers."""

    vocab_size: int = 264
    hidden_size: int = 256
    intermediate_size: int = 768
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 2
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5
    max_positions: int = 8192
    # Layers whose outputs the draft reads. SGLang captures a layer's output on entry to the next
    # one, so the last layer cannot be among them.
    aux_layers: tuple[int, int, int] = (0, 1, 2)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Rotary(nn.Module):
    """Rotary embedding, halves paired (`x[i]` with `x[i + head_dim / 2]`)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
        inverse = 1.0 / shape.rope_theta**exponents
        angles = torch.outer(torch.arange(shape.max_positions, dtype=torch.float32), inverse)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def at(self, start: int, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of positions start to start + length - 1, each [length, D / 2]."""
        return self.cos[start : start + length], self.sin[start : start + length]

    def at_tensor(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The same for positions [T] that are known on the device only."""
        return self.cos[positions], self.sin[positions]


def rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate x [B, heads, T, D] by the angles of its T positions; keeps x's dtype."""
    cos, sin = rope
    low, high = x.float().chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1).to(x.dtype)


class KVCache:
    """Keys and values of all layers for one batch of equally long rows.

    A decode step writes at `position` and reads all slots through a mask, so that its shapes and
    addresses never change and a CUDA graph can hold it.
    """

    def __init__(self, shape: Shape, batch: int, length: int, like: Tensor) -> None:
        # Attention kernels want the mask's rows aligned.
        slots = -(-length // 8) * 8
        size = (shape.num_layers, 2, batch, shape.num_kv_heads, slots, shape.head_dim)
        self.data = torch.zeros(size, device=like.device, dtype=like.dtype)
        self.position = torch.zeros(1, dtype=torch.int64, device=like.device)
        self._slots = torch.arange(slots, device=like.device)

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep new keys and values [B, kv_heads, T, D]; return those to attend to."""
        rows = k.shape[2]
        if rows > 1:
            self.data[layer, 0, :, :, :rows] = k
            self.data[layer, 1, :, :, :rows] = v
            return k, v
        self.data[layer, 0].index_copy_(2, self.position, k)
        self.data[layer, 1].index_copy_(2, self.position, v)
        return self.data[layer, 0], self.data[layer, 1]

    def mask(self) -> Tensor:
        """[1, slots] bool: slots that a decode step sees, its own included."""
        return (self._slots <= self.position)[None]


class Attention(nn.Module):
    def __init__(self, shape: Shape, input_size: int) -> None:
        super().__init__()
        self.shape = shape
        kv_size = shape.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(input_size, shape.hidden_size, bias=False)
        self.k_proj = nn.Linear(input_size, kv_size, bias=False)
        self.v_proj = nn.Linear(input_size, kv_size, bias=False)
        self.o_proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.shape.head_dim)).transpose(1, 2)

    def query(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
        """[B, T, input] -> [B, heads, T, D]."""
        return rotate(self._heads(self.q_proj(x)), rope)

    def key_value(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """[B, T, input] -> two of [B, kv_heads, T, D]."""
        return rotate(self._heads(self.k_proj(x)), rope), self._heads(self.v_proj(x))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, causal: bool, mask: Tensor | None = None
    ) -> Tensor:
        """[B, heads, T, D] queries -> [B, T, H]; `mask` [T, S] is True where a key is seen."""
        groups = self.shape.num_heads // self.shape.num_kv_heads
        if q.shape[2] == 1:
            # A lone query: let the heads that share keys be the rows of one query block.
            grouped = q.squeeze(2).unflatten(1, (-1, groups))
            out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask)
            return self.o_proj(out.flatten(1)[:, None])
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TargetLayer(nn.Module):
    def __init__(self, shape: Shape, index: int) -> None:
        super().__init__()
        self.index = index
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape, shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], cache: KVCache | None) -> Tensor:
        rows = self.input_layernorm(x)
        q = self.self_attn.query(rows, rope)
        k, v = self.self_attn.key_value(rows, rope)
        mask = None
        if cache is not None:
            k, v = cache.store(self.index, k, v)
            mask = cache.mask() if q.shape[2] == 1 else None
        x = x + self.self_attn.attend(q, k, v, causal=True, mask=mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class TargetBody(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.layers = nn.ModuleList(TargetLayer(shape, i) for i in range(shape.num_layers))
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)


class Target(nn.Module):
    """A Llama; `state_dict()` has LlamaForCausalLM's names."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.model = TargetBody(shape)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.rotary = Rotary(shape)
        initialise(self, shape)

    def forward(self, ids: Tensor, cache: KVCache | None = None) -> tuple[Tensor, Tensor]:
        """ids [B, T] int64 -> (normed [B, T, H], aux [B, T, 3 H]).

        `lm_head(normed)` are the logits; aux holds the outputs of `shape.aux_layers`, residual
        included. With a cache, either fill an empty one or decode one token per row.
        """
        if cache is not None and ids.shape[1] == 1:
            rope = self.rotary.at_tensor(cache.position)
        else:
            rope = self.rotary.at(0, ids.shape[1])
        x = self.model.embed_tokens(ids)
        captured = []
        for i, layer in enumerate(self.model.layers):
            x = layer(x, rope, cache)
            if i in self.shape.aux_layers:
                captured.append(x)
        if cache is not None:
            cache.position += ids.shape[1]
        return self.model.norm(x), torch.cat(captured, dim=-1)


class DraftLayer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape, 2 * shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = MLP(shape)

    def rows(self, embeds: Tensor, hidden: Tensor) -> Tensor:
        """What the projections read: [B, T, 2 H]."""
        return torch.cat((self.input_layernorm(embeds), self.hidden_norm(hidden)), dim=-1)

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Draft(nn.Module):
    """EAGLE-3's one-layer draft; the embedding is the target's and is not part of it."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.fc = nn.Linear(3 * shape.hidden_size, shape.hidden_size, bias=False)
        self.midlayer = DraftLayer(shape)
        self.norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.rotary = Rotary(shape)
        initialise(self, shape)


def initialise(module: nn.Module, shape: Shape) -> None:
    """Normal weights, smaller where a projection writes into the residual stream."""
    for name, weight in module.named_parameters():
        if weight.dim() == 2:
            writes_residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            scale = (2 * shape.num_layers) ** -0.5 if writes_residual else 1.0
            nn.init.normal_(weight, std=shape.hidden_size**-0.5 * scale)
