"""Both training loops, driven by a budget of seconds or of steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .corpus import Corpus
from .generate import for_sampling, generate
from .model import Draft, Shape, Target
from .unroll import draft_hidden

WARMUP = 0.02
CHECKPOINT_EVERY_S = 30.0
LOG_EVERY_STEPS = 25
STEP_DISCOUNT = 0.8


@dataclass
class Budget:
    """How long to train: seconds, or steps where the run has to be repeatable."""

    seconds: float
    steps: int | None = None
    _start: float = field(default_factory=time.monotonic)

    def progress(self, step: int) -> float:
        """Share of the budget that is spent, 0 to 1."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        return min(1.0, (time.monotonic() - self._start) / self.seconds)

    def elapsed_s(self) -> float:
        return time.monotonic() - self._start


@dataclass(frozen=True)
class Batching:
    """Sizes of a training step; the defaults fill an H200 without straining it."""

    tokens: int = 131072  # of the target, a step
    target_length: int = 2048
    long_length: int = 8192
    # Share of the target's budget that goes to short windows first; the rest is long windows.
    short_share: float = 0.7
    draft_rows: int = 1024
    draft_long_rows: tuple[int, ...] = (4096, 8184)
    draft_tokens: int = 49152
    draft_steps: int = 3
    own_text_rows: int = 1024
    own_text_prompt: int = 192
    own_text_tokens: int = 1152


@dataclass(frozen=True)
class Run:
    """What both loops share: device, randomness, logging and checkpointing."""

    device: torch.device
    generator: torch.Generator
    log: Callable[[dict[str, object]], None]
    batching: Batching
    compile: bool

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda")


def learning_rate(progress: float) -> float:
    """Share of the peak learning rate: linear warm-up, then linear decay to zero."""
    return min(progress / WARMUP, (1.0 - progress) / (1.0 - WARMUP)) if progress < 1 else 0.0


def optimizer(module: nn.Module, peak: float) -> torch.optim.AdamW:
    matrices = [p for p in module.parameters() if p.requires_grad and p.dim() == 2]
    vectors = [p for p in module.parameters() if p.requires_grad and p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    fused = matrices[0].is_cuda
    return torch.optim.AdamW(groups, lr=peak, betas=(0.9, 0.95), eps=1e-8, fused=fused)


def apply(
    module: nn.Module, optim: torch.optim.Optimizer, loss: Tensor, peak: float, progress: float
) -> None:
    """One optimizer step."""
    for group in optim.param_groups:
        group["lr"] = peak * learning_rate(progress)
    optim.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optim.step()


def rounded(value: Tensor) -> float:
    return round(value.item(), 4)


def crops(
    stream: Tensor,
    count: int,
    length: int,
    generator: torch.Generator,
    starts: Tensor | None = None,
) -> Tensor:
    """[count, length] windows of `stream`; given `starts`, a quarter of them begin there."""
    last = stream.numel() - length
    where = torch.randint(0, last + 1, (count,), generator=generator)
    if starts is not None:
        chosen = torch.randint(0, starts.numel(), (count // 4,), generator=generator)
        where[: count // 4] = starts[chosen].clamp(max=last)
    index = where.to(stream.device)[:, None] + torch.arange(length, device=stream.device)
    return stream[index]


def row_crops(rows: Tensor, count: int, length: int, generator: torch.Generator) -> Tensor:
    """[count, length] windows, each inside one row of `rows` [N, L]."""
    row = torch.randint(0, rows.shape[0], (count,), generator=generator).to(rows.device)
    start = torch.randint(0, rows.shape[1] - length + 1, (count,), generator=generator)
    index = start.to(rows.device)[:, None] + torch.arange(length, device=rows.device)
    return rows[row[:, None], index]


class Progress:
    """Says when to log and when to save, and does the logging."""

    def __init__(self, run: Run, model: str, budget: Budget) -> None:
        self.run, self.model, self.budget = run, model, budget
        self.saved_s = 0.0

    def log(self, step: int, tokens: int, **figures: object) -> None:
        elapsed = round(self.budget.elapsed_s(), 1)
        record = {"model": self.model, "step": step, "elapsed_s": elapsed, "tokens": tokens}
        self.run.log({**record, **figures})

    def is_checkpoint_due(self) -> bool:
        """Whether CHECKPOINT_EVERY_S have passed since this last said yes."""
        elapsed = self.budget.elapsed_s()
        due = elapsed - self.saved_s >= CHECKPOINT_EVERY_S
        if due:
            self.saved_s = elapsed
        return due


def train_target(
    shape: Shape,
    corpus: Corpus,
    budget: Budget,
    run: Run,
    peak: float,
    save: Callable[[Target], None],
) -> tuple[Target, int]:
    """Train a target from scratch; returns it (uncompiled) and the number of steps."""
    target = Target(shape).to(run.device)
    optim = optimizer(target, peak)
    if run.compile:
        for layer in target.model.layers:
            layer.compile(dynamic=False)
    stream = corpus.train.to(run.device)
    sizes, progress, tokens, step = run.batching, Progress(run, "target", budget), 0, 0
    while (done := budget.progress(step)) < 1.0:
        length = sizes.target_length if done < sizes.short_share else sizes.long_length
        count = max(1, sizes.tokens // length)
        ids = crops(stream, count, length + 1, run.generator, corpus.train_starts)
        with run.autocast():
            normed, _ = target(ids[:, :-1])
            logits = target.lm_head(normed).float()
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        apply(target, optim, loss, peak, done)
        tokens += count * length
        if step % LOG_EVERY_STEPS == 0:
            progress.log(step, tokens, loss=rounded(loss))
        if progress.is_checkpoint_due():
            save(target)
        step += 1
    plain = Target(shape).to(run.device)
    plain.load_state_dict(target.state_dict())
    save(plain)
    return plain, step


def own_text(target: Target, corpus: Corpus, run: Run) -> Tensor:
    """[rows, prompt + new tokens] the target's continuations, half greedy, half sampled at 0.8."""
    sizes = run.batching
    stream = corpus.train.to(run.device)
    prompts = crops(
        stream, sizes.own_text_rows, sizes.own_text_prompt, run.generator, corpus.train_starts
    )
    temperatures = torch.zeros(sizes.own_text_rows, device=run.device)
    temperatures[1::2] = 0.8
    sampler = torch.Generator(run.device).manual_seed(run.generator.initial_seed())
    return generate(
        for_sampling(target),
        prompts,
        sizes.own_text_tokens,
        temperatures=temperatures,
        generator=sampler,
    )


def train_draft(
    target: Target,
    corpus: Corpus,
    budget: Budget,
    run: Run,
    peak: float,
    save: Callable[[Draft], None],
) -> tuple[Draft, int]:
    """Train a draft against `target`, on its own text and on the corpus in turn."""
    target.requires_grad_(False)
    draft = Draft(target.shape).to(run.device)
    # Draft and target predict from one vocabulary; the target's head is a good place to start.
    draft.lm_head.load_state_dict(target.lm_head.state_dict())
    draft.norm.load_state_dict(target.model.norm.state_dict())
    optim = optimizer(draft, peak)
    stream = corpus.train.to(run.device)
    sizes, progress, tokens, step = run.batching, Progress(run, "draft", budget), 0, 0
    own = own_text(target, corpus, run)
    run.log({"model": "draft", "own_text_s": round(budget.elapsed_s(), 1)})
    step_weights = STEP_DISCOUNT ** torch.arange(sizes.draft_steps, device=run.device)
    step_weights = step_weights / step_weights.sum()
    while (done := budget.progress(step)) < 1.0:
        # Of eight steps four read the target's own text, three the corpus, one long windows of it.
        turn, place = divmod(step, 8)
        source = "own" if place % 2 == 0 else "corpus"
        rows = sizes.draft_rows
        if place == 7:
            rows = sizes.draft_long_rows[turn % len(sizes.draft_long_rows)]
        count = max(1, sizes.draft_tokens // rows)
        length = rows + sizes.draft_steps
        if source == "own":
            ids = row_crops(own, count, length, run.generator)
        else:
            ids = crops(stream, count, length, run.generator)
        losses, right = chain_losses(target, draft, ids, min(rows, sizes.draft_rows), run)
        loss = (torch.stack(losses) * step_weights).sum()
        apply(draft, optim, loss, peak, done)
        tokens += count * min(rows, sizes.draft_rows)
        if step % LOG_EVERY_STEPS == 0:
            figures = {"loss": [*map(rounded, losses)], "agrees": [*map(rounded, right)]}
            progress.log(step, tokens, text=source, rows=rows, **figures)
        if progress.is_checkpoint_due():
            save(draft)
        step += 1
    save(draft)
    return draft, step


def chain_losses(
    target: Target, draft: Draft, ids: Tensor, queries: int, run: Run
) -> tuple[list[Tensor], list[Tensor]]:
    """Cross-entropy against the target's distribution and agreement of the best token, per step.

    ids [B, R + steps]; chains start behind the last `queries` of the R true rows.
    """
    steps = run.batching.draft_steps
    rows = ids.shape[1] - steps
    first = rows - queries
    with torch.no_grad(), run.autocast():
        normed, aux = target(ids)
        wanted = target.lm_head(normed[:, first + 1 :]).float()
    with run.autocast():
        hidden = draft_hidden(draft, target.model.embed_tokens, ids, aux[:, :rows], queries, steps)
        logits = [draft.lm_head(draft.norm(h)).float() for h in hidden]
    losses, right = [], []
    for step, scores in enumerate(logits):
        goal = wanted[:, step : step + queries]
        losses.append(F.cross_entropy(scores.flatten(0, 1), goal.softmax(-1).flatten(0, 1)))
        right.append((scores.argmax(-1) == goal.argmax(-1)).float().mean())
    return losses, right
