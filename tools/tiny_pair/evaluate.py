"""Held-out numbers: bits per byte, accept length, repetition."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .model import Draft, Target
from .unroll import draft_hidden


@torch.no_grad()
def held_out_loss(target: Target, stream: Tensor, *, windows: int, length: int) -> float:
    """Mean cross-entropy (nats per token) over evenly spread windows of a held-out stream."""
    length = min(length, stream.numel() - 1, target.shape.max_positions)
    last = stream.numel() - length - 1
    total = 0.0
    for i in range(windows):
        start = i * last // max(1, windows - 1)
        ids = stream[start : start + length + 1][None].to(target.lm_head.weight.device)
        normed, _ = target(ids[:, :-1])
        total += F.cross_entropy(target.lm_head(normed)[0], ids[0, 1:]).item()
    return total / windows


def bits(nats: float) -> float:
    return nats / math.log(2)


@torch.no_grad()
def accept_lengths(
    target: Target, draft: Draft, ids: Tensor, prompt_length: int, *, drafts: int = 2
) -> list[list[int]]:
    """Accept length of every verify step of a greedy run whose text is known.

    Where a chain agrees with the text so far, the draft saw the very tokens that it had drafted,
    so one unrolled pass over the finished text gives what drafting step by step would have.

    Args:
        ids: [B, N] int64: prompt and the target's greedy continuation.
        drafts: tokens drafted a step; an accept length is at most drafts + 1.
    """
    ids = ids.to(target.lm_head.weight.device)
    rows = ids.shape[1] - drafts
    _, aux = target(ids[:, :rows])
    hidden = draft_hidden(
        draft, target.model.embed_tokens, ids, aux, rows - prompt_length + 1, drafts
    )
    # right[s][b, i]: the chain behind row prompt_length - 1 + i guesses its s-th token.
    right = [
        (draft.lm_head(draft.norm(h)).argmax(-1) == _following(ids, prompt_length, s, rows)).cpu()
        for s, h in enumerate(hidden)
    ]
    agreed = torch.stack(right).int().cumprod(0).sum(0).tolist()
    return [_walk(row) for row in agreed]


def _following(ids: Tensor, prompt_length: int, step: int, rows: int) -> Tensor:
    # The last chain's last token lies behind the text; it is compared with padding and never read.
    padded = F.pad(ids, (0, 1), value=-1)
    return padded[:, prompt_length + 1 + step : rows + 2 + step]


def _walk(agreed: list[int]) -> list[int]:
    steps, i = [], 0
    while i < len(agreed) - 1:
        steps.append(agreed[i] + 1)
        i += agreed[i] + 1
    return steps


def loop_period(tokens: list[int], *, longest: int = 64, window: int = 256) -> int:
    """Period of the loop that the end of `tokens` is in; 0 if none up to `longest`."""
    tail = tokens[-window:]
    for period in range(1, longest + 1):
        if len(tail) >= 2 * period and tail[period:] == tail[:-period]:
            return period
    return 0


def distinct_share(tokens: list[int], *, size: int = 8) -> float:
    """Share of distinct runs of `size` tokens: 1 without repetition, near 0 in a loop."""
    runs = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return len(set(runs)) / max(1, len(runs))
