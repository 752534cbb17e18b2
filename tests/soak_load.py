"""A long random load around a threshold, and what has to hold while it runs and after it.

Every request is checked when it is answered: greedy ones against their known text, constrained ones
against their schema, the others for completeness.
"""

import json
import random
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import torch
from known_texts import KnownText
from live_server import Answer
from probed_server import ProbedServer
from worker_scenarios import stop_at

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"enum": [7, 1234]}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
MIB = 1 << 20

Check = Callable[[Answer], bool]


@dataclass(frozen=True)
class Asked:
    """A request: what it is, how it samples, and whether an answer to it is right."""

    kind: str
    prompt: list[int]
    sampling: dict[str, Any]
    is_right: Check


@dataclass
class Soak:
    """What came of a load.

    Attributes:
        answered: answers by kind of request.
        wrong: what was answered otherwise than it has to be.
        stuck: requests without an answer.
        memory_bytes: (seconds since the start, memory of the server) once a second.
    """

    answered: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    memory_bytes: list[tuple[float, int]] = field(default_factory=list)

    def grown_bytes(self) -> tuple[float, float]:
        """By how much memory grew after the first third, by a line through it, and the noise:
        what single samples are off that line, three standard deviations of it."""
        later = self.memory_bytes[len(self.memory_bytes) // 3 :]
        seconds, sizes = zip(*later, strict=True)
        line = statistics.linear_regression(seconds, sizes)
        off = [size - line.slope * s - line.intercept for s, size in later]
        return line.slope * (seconds[-1] - seconds[0]), 3 * statistics.pstdev(off)


def soak(
    server: ProbedServer, texts: Sequence[KnownText], threshold: int, duration_s: float, seed: int
) -> Soak:
    """Keep ``threshold`` ± 2 requests running for ``duration_s``, then wait for all of them."""
    rng = random.Random(seed)
    outcome = Soak()
    running: dict[Future[Answer], tuple[str, Asked]] = {}
    aborts: list[tuple[float, str]] = []
    start = time.monotonic()
    clients, next_change, next_sample, number = threshold, 0.0, 0.0, 0

    def collect(done: set[Future[Answer]]) -> None:
        for future in done:
            rid, asked = running.pop(future)
            answer = future.result()
            outcome.answered[asked.kind] += 1
            if not asked.is_right(answer):
                outcome.wrong.append(f"{rid}, {asked.kind} {asked.sampling}: {answer}")

    while (now := time.monotonic() - start) < duration_s:
        if now >= next_change:
            clients = max(1, threshold + rng.randint(-2, 2))
            next_change = now + rng.expovariate(2.0)
        if now >= next_sample:
            outcome.memory_bytes.append((now, memory_bytes(server)))
            next_sample = now + 1.0
        while len(running) < clients:
            asked, rid = _ask(rng, texts), f"soak-{seed}-{(number := number + 1)}"
            future = server.submit(asked.prompt, rid=rid, **asked.sampling)
            running[future] = (rid, asked)
            if asked.kind == "aborted":
                aborts.append((now + rng.uniform(0, 0.5), rid))
        for due, rid in [abort for abort in aborts if abort[0] <= now]:
            aborts.remove((due, rid))
            server.abort(rid)
        collect(wait(running, timeout=0.02, return_when="FIRST_COMPLETED").done)
    for _, rid in aborts:
        server.abort(rid)
    collect(wait(running, timeout=60).done)
    outcome.stuck = [rid for rid, _ in running.values()]
    return outcome


def _ask(rng: random.Random, texts: Sequence[KnownText]) -> Asked:
    text, given, tokens = rng.choice(texts), rng.choice((0, 0, 40, 90)), rng.randint(1, 90)
    prompt, answer = text.prompt + text.answer[:given], text.answer[given:]

    def complete(got: Answer) -> bool:
        return len(got.token_ids) == tokens == got.meta["completion_tokens"]

    def greedy(got: Answer) -> bool:
        return complete(got) and got.token_ids == answer[:tokens]

    def stopped(got: Answer) -> bool:
        return got.token_ids == answer[: answer.index(answer[tokens]) + 1]

    def with_logprobs(got: Answer) -> bool:
        told = [token for _, token, _ in got.meta["output_token_logprobs"]]
        return greedy(got) and told == got.token_ids

    def valid(got: Answer) -> bool:
        return set(json.loads(got.text)) == {"name", "n"}

    def begun(got: Answer) -> bool:
        return got.token_ids == answer[: len(got.token_ids)]

    limit = {"max_new_tokens": tokens}
    schema = {"max_new_tokens": 100, "ignore_eos": False, "json_schema": json.dumps(SCHEMA)}
    top = {"temperature": 1.0, "top_p": 0.8, "top_k": 20}
    penalties = {"frequency_penalty": 1.0, "repetition_penalty": 1.2}
    kinds: tuple[tuple[str, dict[str, Any], Check], ...] = (
        ("greedy", limit, greedy),
        ("greedy", limit, greedy),
        ("stop token", stop_at(answer[tokens]), stopped),
        ("logprobs", limit | {"return_logprob": True, "top_logprobs_num": 2}, with_logprobs),
        ("temperature", limit | {"temperature": 0.8}, complete),
        ("top-p and top-k", limit | top, complete),
        ("min-p", limit | {"temperature": 1.0, "min_p": 0.1}, complete),
        ("penalties", limit | penalties, complete),
        ("schema", schema, valid),
        ("aborted", {"max_new_tokens": 200}, begun),
    )
    kind, sampling, is_right = rng.choice(kinds)
    return Asked(kind, prompt, sampling, is_right)


def memory_bytes(server: ProbedServer) -> int:
    """What the server's processes hold, and the GPU where there is one."""
    processes = [server.process(), *server.process().children(recursive=True)]
    held = sum(process.memory_info().rss for process in processes)
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        held += total - free
    return held


def errors_in(log: str) -> list[str]:
    return [
        line
        for line in log.splitlines()
        if re.search(r"\b(ERROR|Traceback|Exception|CRITICAL)\b|Leak Detected", line)
    ]


def require_sound(server: ProbedServer, outcome: Soak, kinds: int = 9) -> None:
    """All was answered, rightly; the server is idle with every slot free, and no larger."""
    assert outcome.stuck == []
    assert outcome.wrong == []
    assert len(outcome.answered) == kinds, outcome.answered
    server.wait_until_idle()
    assert errors_in(server.log.read_text()) == []
    grown, noise = outcome.grown_bytes()
    assert grown < max(noise, 24 * MIB), f"grew by {grown / MIB:.1f} MiB"
