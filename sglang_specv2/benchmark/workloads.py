"""Prompts as token ids: four kinds, the same for every arm of a round."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sglang_specv2.benchmark import texts
from sglang_specv2.benchmark.pairs import Pair
from sglang_specv2.errors import ConfigError

_MARGIN_TOKENS = 32
"""Left free below the context length: drafts, and whatever a template adds."""
_LONG_TOKENS = 8192
_RANDOM_TOKENS = 128


@dataclass(frozen=True)
class Workload:
    """A kind of prompt.

    Attributes:
        title: in tables and figures.
        text: whether it consists of words, which takes a tokenizer and weights that mean something.
        server_flags: of every arm.
    """

    name: str
    title: str
    text: bool
    server_flags: tuple[str, ...] = ()


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("coding", "coding, one long system prompt", text=True),
        Workload("chat", "chat", text=True),
        Workload("long", "long context", text=True),
        # Random prompts have no prefix in common; looking for one is work for nothing.
        Workload("random", "random ids", text=False, server_flags=("--disable-radix-cache",)),
    )
}


class Prompts:
    """Makes the prompts of one workload for one pair.

    Args:
        output_tokens: that have to fit behind each prompt.
        random_tokens: length of random prompts.

    Raises:
        ConfigError: words for a pair that cannot read them, or a context that is too short.
    """

    def __init__(
        self,
        workload: Workload,
        pair: Pair,
        output_tokens: int,
        random_tokens: int = _RANDOM_TOKENS,
    ) -> None:
        if workload.text and pair.dummy:
            raise ConfigError(
                f"--workload {workload.name} with {pair.title}: words mean nothing to dummy "
                "weights; expected --workload random, or --model and --draft"
            )
        self.workload, self._random_tokens = workload, random_tokens
        context = pair.context_tokens
        self._limit = None if context is None else context - output_tokens - _MARGIN_TOKENS
        if self._limit is not None and self._limit < _MARGIN_TOKENS:
            raise ConfigError(
                f"--output-tokens {output_tokens}: {pair.title} has a context of {context} tokens"
            )
        if self._limit is not None and not workload.text and random_tokens > self._limit:
            raise ConfigError(
                f"--prompt-tokens {random_tokens}: expected at most {self._limit}, since "
                f"{pair.title} has a context of {context} tokens, and {output_tokens} come behind"
            )
        self._tokenizer = _load_tokenizer(pair.target) if workload.text else None
        self._vocabulary = _vocabulary_size(pair)
        self._made: dict[tuple[int, int], list[list[int]]] = {}

    def make(self, count: int, seed: int) -> list[list[int]]:
        """Token ids of ``count`` prompts; the same seed makes the same ones."""
        if (count, seed) not in self._made:
            self._made[count, seed] = self._make(count, seed)
        return self._made[count, seed]

    def _make(self, count: int, seed: int) -> list[list[int]]:
        rng = random.Random(f"{self.workload.name} {seed}")
        makers: dict[str, Callable[[random.Random], list[int]]] = {
            "coding": lambda rng: self._ids(texts.AGENT, texts.coding(rng)),
            "chat": lambda rng: self._ids(None, texts.chat(rng)),
            "long": self._long,
            "random": self._random,
        }
        make = makers[self.workload.name]
        return [make(rng)[-self._limit if self._limit else None :] for _ in range(count)]

    def _random(self, rng: random.Random) -> list[int]:
        # The first ids are often special ones.
        return [rng.randrange(10, self._vocabulary) for _ in range(self._random_tokens)]

    def _long(self, rng: random.Random) -> list[int]:
        budget = min(_LONG_TOKENS, self._limit or _LONG_TOKENS)
        question = self._ids(None, texts.JOURNAL_QUESTION)
        journal: list[int] = []
        number = 0
        while len(journal) + len(question) < budget:
            journal += self._encode(texts.journal_line(rng, number) + "\n")
            number += 1
        return journal[: budget - len(question)] + question

    def _ids(self, system: str | None, user: str) -> list[int]:
        tokenizer: Any = self._tokenizer
        messages = [{"role": "user", "content": user}]
        if system is not None:
            messages.insert(0, {"role": "system", "content": system})
        if tokenizer.chat_template:
            ids = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=False
            )
            return [int(token) for token in ids]
        return self._encode("\n\n".join(message["content"] for message in messages) + "\n\n")

    def _encode(self, text: str) -> list[int]:
        tokenizer: Any = self._tokenizer
        return [int(token) for token in tokenizer.encode(text, add_special_tokens=False)]


def _load_tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def _vocabulary_size(pair: Pair) -> int:
    if pair.vocabulary_size is not None:
        return pair.vocabulary_size
    from transformers import AutoConfig

    return int(AutoConfig.from_pretrained(pair.target).vocab_size)
