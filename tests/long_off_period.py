"""Acceptance behind a long period without speculation, against the same text never off.

Greedy texts of a small model loop, and in a loop every draft is right. So requests decode a text
that is given: in plain steps, token by token; and never off, as the prompt of a second request,
whose draft KV cache SGLang's own prefill writes. Behind it both draft for themselves.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from probed_server import ProbedServer

PROMPT_TOKENS = 48
STEPS, FIRST_STEPS = 24, 8
_DRAFTS_AND_BONUS = 3

LONG_FLAGS = (
    # A prompt in pieces would use up forced tokens on what SGLang throws away.
    *("--context-length", "8192", "--chunked-prefill-size", "-1"),
    *("--max-total-tokens", "40000", "--enable-custom-logit-processor"),
    *("--speculative-dynamic", "never"),
)
PROCESSOR = json.dumps({"callable": b"cspecv2_probe.forced_text\nForcedText\n.".hex()})
"""The probe's, as a request names it."""


def given_texts(number: int, tokens: int) -> list[list[int]]:
    """Pieces of a module of Python's, a token each byte."""
    source = Path(argparse.__file__).read_bytes()
    apart = (len(source) - tokens) // number
    assert apart > 200
    return [list(source[i * apart : i * apart + tokens]) for i in range(number)]


def accepts_behind_plain_tokens(
    server: ProbedServer, plain_steps: int, requests: int = 8
) -> tuple[list[list[int]], list[list[int]]]:
    """Accept lengths of the first verifies of each request: after plain steps, and never off."""
    texts = given_texts(requests, PROMPT_TOKENS + plain_steps + 2)
    after = _serve(
        server,
        f"{plain_steps}p 100000s",
        [(text[:PROMPT_TOKENS], text[PROMPT_TOKENS:]) for text in texts],
    )
    never = _serve(
        server,
        "1s",
        [
            (text[:position], text[position : position + 1])
            for text, (position, _) in zip(texts, after, strict=True)
        ],
    )
    assert [position for position, _ in never] == [position for position, _ in after]
    return [accepts for _, accepts in after], [accepts for _, accepts in never]


def first_steps(accepts: Sequence[Sequence[int]]) -> int:
    """Tokens of the first verifies of all requests."""
    return sum(sum(request[:FIRST_STEPS]) for request in accepts)


def _serve(
    server: ProbedServer, runs: str, asked: Sequence[tuple[list[int], list[int]]]
) -> list[tuple[int, list[int]]]:
    """For each prompt and forced text: the position of the first verify, and accept lengths."""
    server.wait_until_idle()
    server.schedule(runs)
    server.new_steps()
    waiting = {
        f"{runs}-{number}": server.submit(
            prompt,
            rid=f"{runs}-{number}",
            max_new_tokens=len(forced) + _DRAFTS_AND_BONUS * STEPS,
            custom_logit_processor=PROCESSOR,
            custom_params={"forced": forced},
        )
        for number, (prompt, forced) in enumerate(asked)
    }
    given = {rid: future.result().token_ids for rid, future in waiting.items()}
    verifies: dict[str, list[tuple[int, int]]] = {rid: [] for rid in waiting}
    for step in server.new_steps():
        for row in step.rows if step.speculative else ():
            verifies[row.rid].append((row.position, row.accepted))
    for (rid, rows), (prompt, forced) in zip(verifies.items(), asked, strict=True):
        plain = rows[0][0] - len(prompt) + 1
        assert given[rid][:plain] == forced[:plain], "it decoded another text"
    return [(rows[0][0], [accepted for _, accepted in rows[:STEPS]]) for rows in verifies.values()]
