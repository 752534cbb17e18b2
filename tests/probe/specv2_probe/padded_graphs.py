"""Stands in for the plain graphs where there is no GPU: the same padding, run eagerly.

The value names the capture sizes, ``2,4,8``. What a captured graph replays is called here as it
would have been captured: the target's forward on padded static rows.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


def install(sizes: str) -> None:
    from sglang_specv2 import plain_decode

    original = plain_decode.PlainDecodeRuntime.__init__

    def __init__(self: Any, model_runner: Any, failures: Any) -> None:
        original(self, model_runner, failures)
        captured = [int(size) for size in sizes.split(",")]
        self._graph_runner = _PaddedRunner(model_runner, captured)
        self.sizes = plain_decode.CaptureSizes(captured)

    plain_decode.PlainDecodeRuntime.__init__ = __init__


class _PaddedRunner:
    """The part of SGLang's DecodeCudaGraphRunner that a plain step meets."""

    def __init__(self, model_runner: Any, sizes: list[int]) -> None:
        self._model_runner = model_runner
        self.capture_bs = sizes
        self.bs = 0

    def can_run_graph(self, forward_batch: Any) -> bool:
        return forward_batch.batch_size <= max(self.capture_bs)

    def execute(self, forward_batch: Any, pp_proxy_tensors: Any = None) -> Any:
        rows = forward_batch.batch_size
        self.bs = min(size for size in self.capture_bs if size >= rows)

        def padded(tensor: torch.Tensor, fill: int) -> torch.Tensor:
            return torch.cat((tensor, tensor.new_full((self.bs - rows,), fill)))

        batch = dataclasses.replace(
            forward_batch,
            batch_size=self.bs,
            input_ids=padded(forward_batch.input_ids, 0),
            positions=padded(forward_batch.positions, 0),
            req_pool_indices=padded(forward_batch.req_pool_indices, 0),
            out_cache_loc=padded(forward_batch.out_cache_loc, 0),
            seq_lens=padded(forward_batch.seq_lens, 1),
            seq_lens_cpu=padded(forward_batch.seq_lens_cpu, 1),
        )
        self._model_runner.attn_backend.init_forward_metadata(batch)
        output = self._model_runner.model.forward(batch.input_ids, batch.positions, batch)
        return dataclasses.replace(
            output,
            next_token_logits=output.next_token_logits[:rows],
            hidden_states=output.hidden_states[:rows],
        )
