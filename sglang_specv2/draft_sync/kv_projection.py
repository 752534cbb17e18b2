"""K and V of a one-layer EAGLE draft, without running the draft.

The first draft layer reads nothing but the next token's embedding and the target's hidden state,
so its K and V are a projection of those two, rotated to their position. The modules used here are
the draft's own (norms, ``fc``, rotary embedding, the K and V rows of its fused projection), so
weight updates, tensor-parallel shards and dtypes are theirs.

Sources: EAGLE (Li et al., 2024, arXiv:2401.15077), EAGLE-3 (Li et al., 2025, arXiv:2503.01840).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

from sglang_specv2.draft_sync.choice import reason_against_kv


class KVProjection:
    """``(token embedding, target hidden state, position) -> (K, V)`` of a draft's only layer.

    Args:
        draft_model: the draft as SGLang loaded it.
    """

    def __init__(self, draft_model: Any) -> None:
        self._model = draft_model.model
        self._layer = self._model.layers[0]
        self.attention = self._layer.self_attn

    def embed(self, token_ids: torch.Tensor) -> torch.Tensor:
        """``[n]`` int64 → ``[n, hidden]``; with tensor parallelism this is a collective."""
        return self._model.embed_tokens(token_ids)

    def __call__(
        self,
        embeds: torch.Tensor,  # [n, hidden]
        hidden_states: torch.Tensor,  # [n, width of the target's states]
        positions: torch.Tensor,  # [n], int64
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """K and V of this rank's heads: two of ``[n, kv_heads, head_dim]``."""
        attention = self.attention
        inputs = self._attention_input(embeds, hidden_states)
        # Read through the module on every call: a weight update may replace the tensor.
        weight, bias = attention.qkv_proj.weight, getattr(attention.qkv_proj, "bias", None)
        kv = torch.nn.functional.linear(
            inputs, weight[attention.q_size :], None if bias is None else bias[attention.q_size :]
        )
        k, v = kv.split([attention.kv_size, attention.kv_size], dim=-1)
        k = k.contiguous()
        # The rotary kernel wants a query as well; one head of it is the least there is.
        query = torch.empty_like(k[:, : attention.head_dim])
        _, k = attention.rotary_emb(positions, query, k)
        heads = (-1, attention.num_kv_heads, attention.head_dim)
        return k.view(heads), v.contiguous().view(heads)

    def _attention_input(self, embeds: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError


class EagleProjection(KVProjection):
    """EAGLE: one ``fc`` over the two inputs side by side, no input norm."""

    def _attention_input(self, embeds: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        return self._model.fc(torch.cat((embeds, hidden_states), dim=-1))


class Eagle3Projection(KVProjection):
    """EAGLE-3: ``fc`` over the target's auxiliary layers, then both inputs normed side by side."""

    def _attention_input(self, embeds: torch.Tensor, hidden_states: torch.Tensor) -> torch.Tensor:
        model, layer = self._model, self._layer
        if hidden_states.shape[-1] != embeds.shape[-1]:
            if model.input_norm is not None:
                hidden_states = model.input_norm(hidden_states)
            if model.fc_norm is not None:
                chunks = hidden_states.chunk(model.num_aux_hidden_states, dim=-1)
                hidden_states = torch.cat(
                    [
                        norm(chunk.contiguous())
                        for norm, chunk in zip(model.fc_norm, chunks, strict=True)
                    ],
                    dim=-1,
                )
            hidden_states = model.fc(hidden_states)
        return torch.cat((layer.input_layernorm(embeds), layer.hidden_norm(hidden_states)), dim=-1)


PROJECTIONS: Mapping[str, type[KVProjection]] = {
    "LlamaForCausalLMEagle3": Eagle3Projection,
    "LlamaForCausalLMEagle": EagleProjection,
    "Qwen2ForCausalLMEagle": EagleProjection,
}


def reason_against_loaded(draft_runner: Any) -> str | None:
    """Why a loaded draft cannot have its K and V written alone; None when it can.

    Adds to the reasons readable from the configuration those that only the loaded modules show.
    """
    model = draft_runner.model
    architecture = type(model).__name__
    config = draft_runner.model_config.hf_config
    against = reason_against_kv({**config.to_dict(), "architectures": [architecture]})
    if against:
        return against
    method = model.model.layers[0].self_attn.qkv_proj.quant_method
    if type(method) is not UnquantizedLinearMethod:
        return (
            f"the draft's projection uses {type(method).__name__}; its K and V rows cannot be "
            "split off"
        )
    if draft_runner.dcp_size > 1:
        return "decode context parallelism shards the draft's KV slots"
    if getattr(model.model, "is_mrope_enabled", False):
        return "the draft uses multimodal rotary positions"
    pool = type(draft_runner.token_to_kv_pool).__name__
    if pool != "MHATokenToKVPool":
        return f"the draft's KV pool is {pool}; only MHATokenToKVPool is written directly"
    if draft_runner.token_to_kv_pool.is_quantized_kv_cache:
        return "the draft's KV cache is block-quantized"
    return None
