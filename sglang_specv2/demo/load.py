"""Clients that each ask one question after the other, and how many of them when."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from sglang_specv2.demo.server import DemoError

Ask = Callable[[str], Iterable[str]]


@dataclass(frozen=True)
class Phase:
    """``clients`` at once for ``seconds``, and on until the server is in ``mode`` if given."""

    clients: int
    seconds: float
    mode: str | None = None


RISE_AND_FALL = (
    Phase(1, 5),
    Phase(3, 2),
    Phase(6, 3),
    Phase(9, 2),
    Phase(12, 7, mode="plain"),
    Phase(8, 2),
    Phase(4, 3),
    Phase(1, 5, mode="speculative"),
)


class Load:
    """A number of clients, changed while they run.

    Args:
        ask: sends a prompt and gives the answer in pieces, or raises DemoError.
        prompts: asked in turn, by all clients together.

    Attributes:
        answers: the latest answer to each prompt.
        writing: what the first client asked last, and the answer as far as it is written.
        error: what stopped a client, if anything did.
    """

    def __init__(self, ask: Ask, prompts: Sequence[str]) -> None:
        self.answers: dict[str, str] = {}
        self.writing: tuple[str, str] = ("", "")
        self.error: DemoError | None = None
        self._ask = ask
        self._prompts: Iterator[str] = itertools.cycle(prompts)
        self._next_prompt = threading.Lock()
        self._clients = 0
        self._threads: dict[int, threading.Thread] = {}

    def resize(self, clients: int) -> None:
        """More clients start at once; those too many end with the answer they wait for."""
        self._clients = clients
        for number in range(clients):
            thread = self._threads.get(number)
            if thread is None or not thread.is_alive():
                # Daemons: a client that waits for an answer holds up no exit.
                thread = threading.Thread(target=self._run, args=(number,), daemon=True)
                self._threads[number] = thread
                thread.start()

    def _run(self, number: int) -> None:
        while number < self._clients and self.error is None:
            with self._next_prompt:
                prompt = next(self._prompts)
            try:
                self.answers[prompt] = self._answer(number, prompt)
            except DemoError as error:
                self.error = error

    def _answer(self, number: int, prompt: str) -> str:
        text = ""
        for piece in self._ask(prompt):
            text += piece
            if number == 0:
                self.writing = (prompt, text)
        return text
