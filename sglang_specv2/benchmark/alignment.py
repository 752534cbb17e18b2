"""Accept lengths by step after a period without speculation, read from what clients received."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sglang_specv2.benchmark.records import RequestRecord

FIRST_STEPS = 8
"""The steps behind a switch that the claim is about."""
WINDOW_STEPS = 64
"""The steps that are kept and drawn."""

JOIN_TOKENS = 32
"""What a filler has left over for the time that the others take to join."""


def align(fillers: Sequence[RequestRecord], matter: Sequence[RequestRecord]) -> dict[str, Any]:
    """Accept lengths of the requests that matter, by step from the first speculative one on.

    All requests of a batch take a step together. The first speculative step is the first one after
    the last filler's end in which any of them got more than one token.
    """
    fillers_end_s = max(record.end_s for record in fillers)
    whole = [record for record in matter if not _merged(record)]
    tails = [_tail(record, fillers_end_s) for record in whole]
    starts = [_first_above_one(tail) for tail in tails]
    found = [start for start in starts if start is not None]
    start = min(found, default=0)
    steps, plain_tokens = [], []
    for record, tail in zip(whole, tails, strict=True):
        window = tail[start : start + WINDOW_STEPS]
        if len(window) >= FIRST_STEPS:
            steps.append(window)
            plain_tokens.append(record.tokens - sum(tail[start:]))
    return {
        "steps": steps,
        "plain_tokens": plain_tokens,
        "merged": len(matter) - len(whole),
        "lag_steps": start,
    }


def _tail(record: RequestRecord, after_s: float) -> list[int]:
    """Tokens of the chunks after a moment, without the last one, which the length cuts."""
    chunks = [
        tokens
        for at, tokens in zip(record.token_times_s, record.chunk_tokens, strict=True)
        if at > after_s
    ]
    return chunks[:-1]


def _first_above_one(tail: Sequence[int]) -> int | None:
    return next((i for i, tokens in enumerate(tail) if tokens > 1), None)


def _merged(record: RequestRecord) -> bool:
    """Whether the chunks of the verified steps differ from what the server counted for each.

    Those are the last chunks, one for each verify. The very last may be cut by the length.
    """
    counted = record.accepted_histogram
    if not counted or sum(counted) >= len(record.chunk_tokens):
        return True
    chunks = record.chunk_tokens[-sum(counted) :]
    missing = Counter({drafts: number for drafts, number in enumerate(counted) if number})
    missing.subtract(tokens - 1 for tokens in chunks[:-1])
    left = [drafts for drafts, number in missing.items() if number]
    return not (len(left) == 1 and missing[left[0]] == 1 and left[0] >= chunks[-1] - 1)
