"""The attention backend of the CPU engine, for every forward of the EAGLE path.

Forwards differ only in how many of a request's last positions attend, and over how many. With
``seq_lens`` as SGLang hands them over and n draft tokens:

===================  =================  ===================================
forward              query length       KV length
===================  =================  ===================================
prefill              extend_seq_lens    seq_lens
decode               1                  seq_lens
TARGET_VERIFY        n                  seq_lens + n
DRAFT_EXTEND_V2      extend_seq_lens    seq_lens (n is added already)
draft decode step i  1                  seq_lens + i + 1
===================  =================  ===================================

It goes by SGLang's name ``torch_native``, which SGLang takes as the sign to use no Triton.
"""

from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor

from sglang_specv2.cpu.attention import Segments, attend
from sglang_specv2.errors import UnsupportedError

if TYPE_CHECKING:
    from sglang.srt.model_executor.forward_batch_info import ForwardBatch
    from sglang.srt.model_executor.model_runner import ModelRunner


class CpuAttentionBackend(AttentionBackend):
    """Causal self-attention over SGLang's KV pools.

    Args:
        model_runner: whose pools are read and written.
        draft_step: the step of the multi-step draft decode that this instance serves, if any.
    """

    def __init__(self, model_runner: "ModelRunner", draft_step: int | None = None) -> None:
        super().__init__()
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self.max_context_len = model_runner.model_config.context_len
        self.draft_step = draft_step
        self.segments: Segments | None = None

    def init_forward_metadata(self, forward_batch: "ForwardBatch") -> None:
        if forward_batch.forward_mode.is_idle():
            self.segments = None
            return
        query_lens, kv_lens = self._lengths(forward_batch)
        self.segments = Segments.build(
            query_lens,
            kv_lens,
            forward_batch.req_pool_indices.long(),
            self.req_to_token_pool.req_to_token,
        )

    def _lengths(self, forward_batch: "ForwardBatch") -> tuple[Tensor, Tensor]:
        mode, seq_lens = forward_batch.forward_mode, forward_batch.seq_lens.long()
        if self.draft_step is not None:
            return torch.ones_like(seq_lens), seq_lens + self.draft_step + 1
        if mode.is_target_verify():
            n = forward_batch.spec_info.draft_token_num
            return torch.full_like(seq_lens, n), seq_lens + n
        if mode.is_decode():
            return torch.ones_like(seq_lens), seq_lens
        return forward_batch.extend_seq_lens.long(), seq_lens

    def forward_extend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: RadixAttention,
        forward_batch: "ForwardBatch",
        save_kv_cache: bool = True,
        **unused: Any,
    ) -> Tensor:
        """``q``: ``[tokens, heads * dim]``; returns ``[tokens, heads * value dim]``.

        Raises:
            UnsupportedError: for anything but causal self-attention without a window.
        """
        if layer.is_cross_attention or layer.attn_type != AttentionType.DECODER:
            raise UnsupportedError(
                f"the CPU engine has causal self-attention only, layer {layer.layer_id} is "
                f"{'cross-attention' if layer.is_cross_attention else layer.attn_type}"
            )
        if layer.sliding_window_size is not None and layer.sliding_window_size > -1:
            raise UnsupportedError(
                f"the CPU engine has no sliding windows, layer {layer.layer_id} has one of "
                f"{layer.sliding_window_size} tokens"
            )
        if self.segments is None:
            raise RuntimeError("expected init_forward_metadata before the first layer's attention")
        if save_kv_cache and k is not None and v is not None:
            where = KVWriteLoc(forward_batch.out_cache_loc, None)
            self.token_to_kv_pool.set_kv_buffer(layer, where, k, v)
        out = attend(
            q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim),
            self.token_to_kv_pool.get_key_buffer(layer.layer_id),
            self.token_to_kv_pool.get_value_buffer(layer.layer_id),
            self.segments,
            layer.scaling,
        )
        return out.reshape(-1, layer.tp_q_head_num * layer.v_head_dim)

    forward_decode = forward_extend

    def update_verify_buffers_to_fill_after_draft(
        self, spec_info: Any, cuda_graph_bs: int | None
    ) -> None:
        """Nothing depends on the drafts: a chain's mask follows from the lengths."""

    def support_triton(self) -> bool:
        return False


class CpuMultiStepDraftBackend:
    """The backends of the draft's decode steps, one each, as SGLang's draft loop takes them.

    Raises:
        UnsupportedError: topk above 1.
    """

    needs_cpu_seq_lens = True

    def __init__(self, model_runner: "ModelRunner", topk: int, num_steps: int) -> None:
        if topk != 1:
            raise UnsupportedError(
                f"the CPU engine drafts chains: expected --speculative-eagle-topk 1, got {topk}"
            )
        self.attn_backends = [
            CpuAttentionBackend(model_runner, draft_step=step) for step in range(num_steps - 1)
        ]

    def init_forward_metadata(self, forward_batch: "ForwardBatch") -> None:
        for backend in self.attn_backends:
            backend.init_forward_metadata(forward_batch)
