"""Teaches a trained target to leave loops: unlikelihood training on its own greedy text.

A small model that always takes the best token soon repeats itself. Where its own text goes round a
third time, the repeated token's probability is pushed down (https://arxiv.org/abs/1908.04319); the
corpus's cross-entropy in the same step keeps everything else as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .corpus import Corpus
from .generate import for_sampling, generate
from .model import Target
from .training import Budget, Progress, Run, apply, crops, optimizer, rounded

LONGEST_PERIOD = 200
SHORTEST_RUN = 40


@dataclass(frozen=True)
class Sizes:
    """One round: `rows` continuations of `prompt` tokens, then `updates` steps on them."""

    rows: int = 768
    prompt: int = 128
    tokens: int = 768
    updates: int = 16
    own_rows_a_step: int = 64
    corpus_rows_a_step: int = 64
    corpus_length: int = 1024


def unlearn_loops(
    target: Target,
    corpus: Corpus,
    budget: Budget,
    run: Run,
    peak: float,
    sizes: Sizes,
    save: Callable[[Target], None],
) -> int:
    """Train `target` on in place; returns the number of steps."""
    optim = optimizer(target, peak)
    stream = corpus.train.to(run.device)
    progress, tokens, step = Progress(run, "target", budget), 0, 0
    while (done := budget.progress(step)) < 1.0:
        if step % sizes.updates == 0:
            prompts = crops(stream, sizes.rows, sizes.prompt, run.generator, corpus.train_starts)
            own = generate(for_sampling(target), prompts, sizes.tokens)
            loops = looping(own)
        picked = torch.randint(0, sizes.rows, (sizes.own_rows_a_step,), generator=run.generator)
        picked = picked.to(run.device)
        ids = crops(
            stream,
            sizes.corpus_rows_a_step,
            sizes.corpus_length + 1,
            run.generator,
            corpus.train_starts,
        )
        with run.autocast():
            logits = target.lm_head(target(ids[:, :-1])[0]).float()
            own_logits = target.lm_head(target(own[picked, :-1])[0]).float()
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        penalty = unlikelihood(own_logits, own[picked], loops[picked])
        apply(target, optim, loss + penalty, peak, done)
        tokens += ids.numel() + own[picked].numel()
        if step % sizes.updates == 0:
            looping_share = rounded(loops[:, sizes.prompt :].float().mean())
            progress.log(
                step, tokens, loss=rounded(loss), penalty=rounded(penalty), loops=looping_share
            )
        if progress.is_checkpoint_due():
            save(target)
        step += 1
    save(target)
    return step


def looping(ids: Tensor) -> Tensor:
    """[B, N] bool: tokens that continue a loop.

    With some period p up to LONGEST_PERIOD, the text before the token repeats itself over at least
    p and SHORTEST_RUN tokens (indented code repeats a space for longer than a few), and the token
    goes on with it.
    """
    length = ids.shape[1]
    index = torch.arange(length, device=ids.device)
    found = torch.zeros_like(ids, dtype=torch.bool)
    for period in range(1, min(LONGEST_PERIOD, length - 1) + 1):
        same = torch.zeros_like(found)
        same[:, period:] = ids[:, period:] == ids[:, :-period]
        last_difference = torch.where(same, -1, index).cummax(dim=1).values
        found |= index - last_difference > max(period, SHORTEST_RUN)
    return found


def unlikelihood(logits: Tensor, ids: Tensor, loops: Tensor) -> Tensor:
    """Sum of -log(1 - p(token)) over the looping tokens, divided by the number of all tokens.

    Args:
        logits: [B, N - 1, vocab] of positions 0 to N - 2.
        ids, loops: [B, N].
    """
    log_p = -F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    # 1 - p is kept off zero: a certain loop has a finite loss and a gradient.
    penalty = -torch.log1p(-log_p.exp().clamp(max=1 - 1e-4))
    chosen = loops[:, 1:].flatten()
    return (penalty * chosen).mean()
