"""Plain torch in place of SGLang's CUDA kernels that take half precision only.

Greedy tokens are compared exactly in float32, where a tie is as good as impossible.
"""

from __future__ import annotations


def install(value: str) -> None:
    from sglang.srt.layers.activation import SiluAndMul
    from sglang.srt.layers.layernorm import RMSNorm
    from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

    for layer in (RMSNorm, SiluAndMul, RotaryEmbedding):
        layer.forward_cuda = layer.forward_native
