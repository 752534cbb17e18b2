"""What is asked of a switching server, and what has to hold; the same on the CPU and on a GPU.

Requests carry known texts (:mod:`known_texts`), so every token and, from the position of each
step, every accept length is known beforehand, whatever the modes of the steps before it.
"""

import itertools
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from known_texts import KnownText
from live_server import Answer
from probed_server import Entries, ProbedServer, Row, Step

from sglang_specv2.policy import Mode, ThresholdPolicy

THRESHOLD = {"disable_above": 3, "enable_at": 2, "min_dwell": 4}
THRESHOLD_FLAGS = (
    *("--speculative-disable-batch-threshold", "3"),
    *("--speculative-enable-batch-threshold", "2"),
    *("--speculative-switch-min-dwell", "4"),
)
FROM_THE_REFERENCE = 1e-4 if torch.cuda.is_available() else 5e-5
"""How far rounding in float32 takes an entry of the draft's KV cache; entries reach 14."""

CONTEXT = 640
"""Tokens that a prompt and its answer may have together on the servers that are compared."""
SERVED_ALIKE = (
    *("--context-length", str(CONTEXT)),
    *("--chunked-prefill-size", "64"),
    "--constrained-json-disable-any-whitespace",
    "--enable-custom-logit-processor",
)
SWITCHING_FLAGS = (
    *THRESHOLD_FLAGS,
    *SERVED_ALIKE,
    *("--enable-metrics", "--decode-log-interval", "1"),
)

_numbers = itertools.count()


@dataclass(frozen=True)
class Request:
    """A known text and how much of its answer is asked for.

    ``given`` tokens of the answer are part of the prompt, as in a second turn.
    """

    text: KnownText
    tokens: int
    given: int = 0

    @property
    def prompt(self) -> list[int]:
        return self.text.prompt + self.text.answer[: self.given]

    @property
    def expected(self) -> list[int]:
        return self.text.answer[self.given : self.given + self.tokens]


@dataclass(frozen=True)
class Outcome:
    """Requests and answers by request id, and the decode steps that they were in."""

    requests: dict[str, Request]
    answers: dict[str, Answer]
    steps: list[Step]

    def wrong_tokens(self) -> list[str]:
        """Answers that are not the text's."""
        return [
            f"{rid}: expected {request.expected}, got {self.answers[rid].token_ids}"
            for rid, request in self.requests.items()
            if self.answers[rid].token_ids != request.expected
        ]

    def accepts(self) -> list[tuple[str, int, int, int]]:
        """(request, position, expected, accepted) of every verify that can be predicted."""
        found = []
        for step in self.steps:
            for row in step.rows if step.speculative else ():
                predicted = self.requests[row.rid].text.draft.accepted
                if row.position < len(predicted) and predicted[row.position] is not None:
                    found.append((row.rid, row.position, predicted[row.position], row.accepted))
        return found

    def wrong_accepts(self) -> list[tuple[str, int, int, int]]:
        """Those of :meth:`accepts` that are not as if speculation had never been off."""
        return [accept for accept in self.accepts() if accept[2] != accept[3]]

    def switches(self) -> int:
        modes = [step.speculative for step in self.steps]
        return sum(a != b for a, b in itertools.pairwise(modes))

    def require_right(self) -> None:
        """Every token is the text's, every verify accepts what a never-off draft would get."""
        assert self.wrong_tokens() == []
        assert self.accepts() or not any(step.speculative for step in self.steps)
        assert self.wrong_accepts() == []


def serve(
    server: ProbedServer,
    requests: Iterable[Request],
    runs: str,
    *,
    apart_s: float = 0.0,
    **sampling: Any,
) -> Outcome:
    """Send requests, ``apart_s`` seconds from one to the next, to an idle server; wait for all.

    ``runs`` is the schedule of :meth:`ProbedServer.schedule`.
    """
    server.schedule(runs)
    server.new_steps()
    by_rid = {f"request-{next(_numbers)}": request for request in requests}
    waiting = {}
    for rid, request in by_rid.items():
        waiting[rid] = server.submit(
            request.prompt, rid=rid, max_new_tokens=request.tokens, **sampling
        )
        time.sleep(apart_s)
    answers = {rid: future.result() for rid, future in waiting.items()}
    return Outcome(by_rid, answers, [step for step in server.new_steps() if in_step(by_rid, step)])


def in_step(rids: Iterable[str], step: Step) -> bool:
    return not {row.rid for row in step.rows}.isdisjoint(rids)


def of_many_lengths(texts: Sequence[KnownText], shortest: int, longest: int) -> list[Request]:
    """A request for each text; they leave one after the other, not in the order they came."""
    spread = range(len(texts))
    lengths = [shortest + (longest - shortest) * (i * 5 % len(texts)) // len(texts) for i in spread]
    return [Request(text, tokens) for text, tokens in zip(texts, lengths, strict=True)]


def random_runs(seed: int, longest: int = 9, runs: int = 60) -> str:
    """A schedule of seeded random run lengths, both modes in turn."""
    rng = random.Random(seed)
    return " ".join(f"{rng.randint(1, longest)}{'sp'[n % 2]}" for n in range(runs))


def random_case(seed: int, longest: int = 9) -> Any:
    """:func:`random_runs` as a parameter, under a name that does not depend on pytest's version."""
    return pytest.param(random_runs(seed, longest), id=f"random runs {seed}")


def sglangs_configuration(server: ProbedServer) -> dict[str, Any]:
    """What SGLang's globals say is in force, without what any load changes."""
    state = server.get("/server_info")["internal_states"][0]
    changing = {"last_gen_throughput", "memory_usage", "avg_spec_accept_length"}
    return {
        name: value
        for name, value in state.items()
        if name not in changing and not name.startswith("speculative_dynamic")
    }


def require_same_globals_after_switches(server: ProbedServer, texts: Sequence[KnownText]) -> None:
    """Asserts that SGLang's globals are after many switches what they were before."""
    before = sglangs_configuration(server)
    outcome = serve(server, of_many_lengths(texts[:6], 20, 80), "1s 2p")
    server.wait_until_idle()

    assert outcome.switches() >= 8
    assert sglangs_configuration(server) == before
    assert before["speculative_num_draft_tokens"] == 3


def follows_the_threshold(steps: Sequence[Step]) -> bool:
    """Whether the modes are those of a policy of :data:`THRESHOLD`, from some state at first."""
    modes = [Mode.SPECULATIVE if step.speculative else Mode.PLAIN for step in steps]
    for mode in Mode:
        for steps_since_switch in (None, *range(THRESHOLD["min_dwell"] + 1)):
            policy = ThresholdPolicy(**THRESHOLD)
            policy._mode, policy._steps_since_switch = mode, steps_since_switch
            if modes == [policy.decide(len(step.rows)).mode for step in steps]:
                return True
    return False


@dataclass(frozen=True)
class DraftKV:
    """The draft's KV cache of an outcome's requests, seen after every step.

    Attributes:
        snapshots: how many were compared; one for each step and request that has entries by then.
        worst: largest distance of any entry, in any of them, from the reference.
        longest: the longest snapshot of each request, in the order that they were asked in: K and
            V, [positions, kv heads, head dim]. A request whose entries were all pending has none.
    """

    snapshots: int
    worst: float
    longest: list[Entries]


def serve_watched(
    server: ProbedServer, requests: Iterable[Request], runs: str, **options: Any
) -> tuple[Outcome, DraftKV]:
    """:func:`serve`, watching the draft's KV cache. With several ranks, their heads are joined."""
    with server.watching_draft_kv():
        outcome = serve(server, requests, runs, **options)
    count, worst, longest = 0, 0.0, {}
    for rid, by_rank in server.draft_kv():
        if rid in outcome.requests:
            keys, values = zip(*by_rank, strict=True)
            entries = torch.cat(keys, 1), torch.cat(values, 1)
            if not len(entries[0]):
                continue  # Even the prompt's are pending.
            draft = outcome.requests[rid].text.draft
            count, worst = count + 1, max(worst, distance(entries, (draft.k, draft.v)))
            longest[rid] = max(longest.get(rid, entries), entries, key=lambda kv: len(kv[0]))
    return outcome, DraftKV(count, worst, [longest[r] for r in outcome.requests if r in longest])


def distance(one: Entries, other: Entries) -> float:
    """Largest absolute difference over the positions that both have."""
    known = min(len(one[0]), len(other[0]))
    return max(
        (mine[:known] - theirs[:known]).abs().max().item()
        for mine, theirs in zip(one, other, strict=True)
    )


def cut_runs(outcome: Outcome) -> list[Row]:
    """The runs of accepted tokens that a request's limit cut."""
    ends = {rid: len(r.prompt) + r.tokens for rid, r in outcome.requests.items()}
    return [
        row
        for step in outcome.steps
        for row in step.rows
        if row.position + 1 < ends[row.rid] < row.position + 1 + row.accepted
    ]


def tokens_of(answers: Iterable[Answer]) -> list[list[int]]:
    return [answer.token_ids for answer in answers]


def stop_at(token: int) -> dict[str, Any]:
    """Sampling that ends at a token. SGLang looks at stop tokens only where it heeds EOS."""
    return {"max_new_tokens": 120, "stop_token_ids": [token], "ignore_eos": False}
