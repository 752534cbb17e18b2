"""Compares the KV-only projection with the K and V that the draft's own forward computes.

Every forward of the draft on the target's hidden states (prefill and draft extend) is watched; the
file takes one JSON line for each: rows, and the largest relative difference of K and of V.
"""

from __future__ import annotations

import json
from typing import Any

import torch


def install(path: str) -> None:
    from sglang_specv2.draft_sync.kv_projection import PROJECTIONS
    from sglang_specv2.worker import SpecV2Worker

    original = SpecV2Worker.init_cuda_graphs

    def init_cuda_graphs(worker: Any) -> None:
        original(worker)
        runner = worker.draft_worker.draft_runner
        projection = PROJECTIONS[type(runner.model).__name__](runner.model)
        _watch(runner.model, projection, f"{path}.{worker.ps.tp_rank}")

    SpecV2Worker.init_cuda_graphs = init_cuda_graphs


def _watch(model: Any, projection: Any, path: str) -> None:
    computed: dict[str, torch.Tensor] = {}
    attention = projection.attention.attn
    original_attention, original_forward = attention.forward, model.forward

    def attend(q: Any, k: torch.Tensor, v: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        computed.update(k=k.clone(), v=v.clone())
        return original_attention(q, k, v, *args, **kwargs)

    def forward(
        input_ids: Any, positions: Any, forward_batch: Any, *args: Any, **kwargs: Any
    ) -> Any:
        hidden_states = forward_batch.spec_info.hidden_states
        output = original_forward(input_ids, positions, forward_batch, *args, **kwargs)
        if forward_batch.forward_mode.is_extend(include_draft_extend_v2=True):
            k, v = projection(projection.embed(input_ids), hidden_states, positions)
            line = {
                "rows": input_ids.shape[0],
                "k": _difference(k, computed["k"]),
                "v": _difference(v, computed["v"]),
            }
            with open(path, "a") as out:
                out.write(json.dumps(line) + "\n")
        return output

    attention.forward, model.forward = attend, forward


def _difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    ours, theirs = ours.reshape(-1).float(), theirs.reshape(-1).float()
    return float((ours - theirs).abs().max() / theirs.abs().max())
