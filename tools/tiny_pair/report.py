"""Measures a finished pair and writes the table and the model cards."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from . import evaluate, tokenizer
from .corpus import Corpus
from .generate import generate
from .model import Draft, Target
from .unloop import looping

PROMPT_BYTES = 256
ANSWER_BYTES = 400
CHAT_PROMPTS = 8


@dataclass(frozen=True)
class Measured:
    """Figures of a pair on held-out text, float32, weights rounded as saved."""

    held_out_loss: float
    code_accept: float
    chat_accept: float
    long_accept_start: float
    long_accept_end: float
    short_loops: int
    code_looping_share: float
    long_looping_share: float
    long_rows: int
    long_tokens: int
    distinct_share: float
    samples: list[tuple[str, str]]

    def rows(self) -> list[tuple[str, str]]:
        """(what, value) lines, for the table and the cards."""
        return [
            ("held-out loss, nats a byte", f"{self.held_out_loss:.3f}"),
            ("held-out bits a byte", f"{evaluate.bits(self.held_out_loss):.3f}"),
            ("accept length, code, temperature 0, at most 3", f"{self.code_accept:.3f}"),
            ("accept length, chat, temperature 0, at most 3", f"{self.chat_accept:.3f}"),
            (f"accept length, first 512 of {self.long_tokens}", f"{self.long_accept_start:.3f}"),
            (f"accept length, last 512 of {self.long_tokens}", f"{self.long_accept_end:.3f}"),
            (f"rows that end in a 1- or 2-byte loop, of {self.long_rows}", str(self.short_loops)),
            (
                f"bytes that go round a loop again, of {ANSWER_BYTES} a row",
                f"{self.code_looping_share:.2f}",
            ),
            (
                f"bytes that go round a loop again, of {self.long_tokens} a row",
                f"{self.long_looping_share:.2f}",
            ),
            ("distinct 8-byte runs in the long rows", f"{self.distinct_share:.2f}"),
        ]


def measure(
    target: Target,
    draft: Draft,
    corpus: Corpus,
    *,
    code_rows: int,
    long_rows: int,
    long_tokens: int,
) -> Measured:
    """Evaluate a pair; greedy throughout."""
    device = target.lm_head.weight.device
    prompts = _code_prompts(corpus, code_rows).to(device)
    answers = generate(target, prompts, ANSWER_BYTES)
    code = evaluate.accept_lengths(target, draft, answers, PROMPT_BYTES)

    chat, samples = [], []
    for question in corpus.held_out_chats[:CHAT_PROMPTS]:
        ids = tokenizer.encode_chat([("user", question)], add_generation_prompt=True)
        whole = generate(target, torch.tensor([ids], device=device), ANSWER_BYTES)
        answer = _until_end(whole[0, len(ids) :].tolist())
        answered = whole[:, : len(ids) + len(answer) + 1]
        chat += evaluate.accept_lengths(target, draft, answered, len(ids))
        samples.append((question, tokenizer.decode(answer)))
    for row in range(min(2, code_rows)):
        text = tokenizer.decode(answers[row].tolist()).encode()
        samples.append((_text(text[:PROMPT_BYTES]), _text(text[PROMPT_BYTES:])))

    long_ids = generate(target, prompts[:long_rows], long_tokens)
    edge = min(512, long_tokens)
    start = evaluate.accept_lengths(target, draft, long_ids[:, : PROMPT_BYTES + edge], PROMPT_BYTES)
    end = evaluate.accept_lengths(target, draft, long_ids, long_ids.shape[1] - edge)
    endings = [row[PROMPT_BYTES:] for row in long_ids.tolist()]
    periods = [evaluate.loop_period(row) for row in endings]
    return Measured(
        held_out_loss=evaluate.held_out_loss(target, corpus.held_out, windows=64, length=2048),
        code_accept=_mean(code),
        chat_accept=_mean(chat),
        long_accept_start=_mean(start),
        long_accept_end=_mean(end),
        short_loops=sum(0 < period <= 2 for period in periods),
        code_looping_share=_looping_share(answers),
        long_looping_share=_looping_share(long_ids),
        long_rows=len(endings),
        long_tokens=long_tokens,
        distinct_share=sum(map(evaluate.distinct_share, endings)) / len(endings),
        samples=samples,
    )


def write_cards(
    target_folder: Path, draft_folder: Path, measured: Measured, facts: dict[str, object]
) -> None:
    """README.md in both folders: what it is, figures, how it was made, licence of the text."""
    figures = "\n".join(f"| {what} | {value} |" for what, value in measured.rows())
    made = "\n".join(f"| {what} | {value} |" for what, value in {**facts, **versions()}.items())
    shared = CARD.format(figures=figures, made=made)
    target_folder.joinpath("README.md").write_text(TARGET_INTRO + shared + _sample_text(measured))
    draft_folder.joinpath("README.md").write_text(DRAFT_INTRO + shared)


def versions() -> dict[str, object]:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    return {
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "device": device or platform.machine(),
    }


TARGET_INTRO = """# tiny-target

A byte-level Llama (`LlamaForCausalLM`) that writes text which looks like Python. It is there to
test and to show speculative decoding without a GPU; it knows nothing and is right about nothing.
A token is a byte; eight special tokens follow. Trained from scratch by `tools/train_tiny_pair.py`,
at the end against loops in its own greedy text (unlikelihood, https://arxiv.org/abs/1908.04319).
"""

DRAFT_INTRO = """# tiny-draft

The EAGLE-3 draft (`LlamaForCausalLMEagle3`) of tiny-target. It shares the target's embedding, reads
the outputs of the target's layers 0, 1 and 2, and drafts from the target's whole vocabulary.
Trained by `tools/train_tiny_pair.py` as EAGLE-3 is (https://arxiv.org/abs/2503.01840): its own
outputs are fed back for three steps, each step learning the target's distribution.
"""

CARD = """
## Measured

On files that neither model was trained on, greedy, float32, weights rounded to bfloat16 as saved.
Two tokens are drafted a step, so that the accept length (drafts and bonus token) is at most 3.

| what | value |
|---|---|
{figures}

## Made with

| what | value |
|---|---|
{made}

The text: the Python standard library's sources (PSF licence, https://docs.python.org/3/license.html),
and questions written for this project whose answers are functions and docstrings of those sources.
Files are held out by a hash of their path (`tools/tiny_pair/corpus.py`). `training_log.jsonl` holds
the loss as it fell.
"""


def _sample_text(measured: Measured) -> str:
    parts = ["", "## What it writes"]
    for prompt, answer in measured.samples[:3]:
        parts += [
            "",
            _indented(prompt),
            "",
            "is continued or answered with",
            "",
            _indented(answer),
            "",
        ]
    return "\n".join(parts)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.strip("\n").splitlines())


def _code_prompts(corpus: Corpus, count: int) -> Tensor:
    """[count, PROMPT_BYTES]: held-out text from the first line break after evenly spread places."""
    texts = [text.encode() for text in corpus.held_out_files]
    texts = [text for text in texts if len(text) > 2 * PROMPT_BYTES]
    prompts = []
    for i in range(count):
        text = texts[i % len(texts)]
        place = (i * 7919) % (len(text) - 2 * PROMPT_BYTES)
        start = text.find(b"\n", place, place + PROMPT_BYTES) + 1 or place
        prompts.append(list(text[start : start + PROMPT_BYTES]))
    return torch.tensor(prompts)


def _looping_share(ids: Tensor) -> float:
    return looping(ids)[:, PROMPT_BYTES:].float().mean().item()


def _until_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(tokenizer.END_ID)] if tokenizer.END_ID in ids else ids


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


def _mean(rows: list[list[int]]) -> float:
    steps = [length for row in rows for length in row]
    return sum(steps) / max(1, len(steps))
