"""Plain torch in place of SGLang's CUDA kernels that take half precision only.

Greedy tokens are compared exactly in float32, where a tie is as good as impossible.
"""

from __future__ import annotations

from typing import Any


def install(value: str) -> None:
    from sglang.srt.layers.activation import SiluAndMul
    from sglang.srt.layers.layernorm import RMSNorm
    from sglang.srt.layers.logits_processor import LogitsProcessor
    from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

    for layer in (RMSNorm, SiluAndMul, RotaryEmbedding):
        layer.forward_cuda = layer.forward_native

    original = LogitsProcessor.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = original(self, *args, **kwargs)
        # A vocabulary that SGLang pads is cut out of wider rows. In half precision the cast to
        # float32 copies it; without that copy its sampling kernels refuse it and its grammar masks
        # go astray.
        if output.next_token_logits is not None:
            output.next_token_logits = output.next_token_logits.contiguous()
        return output

    LogitsProcessor.forward = forward
