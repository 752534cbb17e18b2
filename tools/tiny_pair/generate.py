"""Batched generation with a KV cache, for training text and evaluation."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from .model import KVCache, Target


def for_sampling(target: Target) -> Target:
    """A bfloat16 copy, where exact tokens do not matter; the rotary tables stay float32."""
    fast = copy.deepcopy(target).bfloat16()
    fast.rotary = target.rotary
    return fast


@torch.no_grad()
def generate(
    target: Target,
    prompts: Tensor,
    new_tokens: int,
    *,
    temperatures: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Continue equally long prompts.

    Args:
        prompts: [B, P] int64.
        temperatures: [B] float, 0 for greedy; None is greedy for all.

    Returns:
        [B, P + new_tokens] int64. Nothing ends a row early.
    """
    batch, length = prompts.shape
    cache = KVCache(target.shape, batch, length + new_tokens, like=target.lm_head.weight)
    ids = torch.empty((batch, length + new_tokens), dtype=torch.int64, device=prompts.device)
    ids[:, :length] = prompts
    normed, _ = target(prompts, cache)
    logits = target.lm_head(normed[:, -1])
    step = _decoder(target, cache, batch)
    for position in range(length, length + new_tokens):
        ids[:, position] = _choose(logits.float(), temperatures, generator)
        if position + 1 < length + new_tokens:
            logits = step(ids[:, position : position + 1])
    return ids


def _decoder(target: Target, cache: KVCache, batch: int) -> Callable[[Tensor], Tensor]:
    """A function from tokens [B, 1] to logits [B, vocab]; on a GPU it replays a CUDA graph."""

    def run(tokens: Tensor) -> Tensor:
        normed, _ = target(tokens, cache)
        return target.lm_head(normed[:, -1])

    if not cache.data.is_cuda:
        return run

    tokens = torch.zeros((batch, 1), dtype=torch.int64, device=cache.data.device)
    start = cache.position.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run(tokens)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        logits = run(tokens)
    # The warm-up moved on; what it wrote is overwritten by the first real step.
    cache.position.copy_(start)

    def replay(new: Tensor) -> Tensor:
        tokens.copy_(new)
        graph.replay()
        return logits

    return replay


def _choose(
    logits: Tensor, temperatures: Tensor | None, generator: torch.Generator | None
) -> Tensor:
    greedy = logits.argmax(-1)
    if temperatures is None:
        return greedy
    scaled = logits / temperatures.clamp(min=1e-3)[:, None]
    sampled = torch.multinomial(scaled.softmax(-1), 1, generator=generator)[:, 0]
    return torch.where(temperatures > 0, sampled, greedy)
