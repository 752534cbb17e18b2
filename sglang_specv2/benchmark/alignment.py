"""Accept lengths by step after a period without speculation, read from what clients received.

A chunk is what one step gave, unless the server was late and sent two steps in one. With a
request's last chunk SGLang tells a histogram: how many of its verifies accepted 0, 1, 2 … drafts.
Chunks that do not make the same histogram are not steps, and their request is left out.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sglang_specv2.benchmark.records import RequestRecord

FIRST_STEPS = 8
"""The steps behind a switch that the claim is about."""
WINDOW_STEPS = 64
"""The steps that are kept and drawn."""
JOIN_TOKENS = 32
"""What a filler has left over for the time that the others take to join."""


@dataclass(frozen=True)
class _Stream:
    """One request's chunks, of which ``chunks[0]`` is the prefill's token.

    Attributes:
        back: index of the first chunk after the last filler's end.
        first: index of the step that counts as the first.
    """

    chunks: Sequence[int]
    back: int
    first: int


def align(
    fillers: Sequence[RequestRecord], matter: Sequence[RequestRecord], plain_tokens: int
) -> dict[str, Any]:
    """Accept lengths of the requests that matter, by step from the first speculative one on.

    A server that was never off is looked at from the same position on, ``plain_tokens``: where the
    others' period ended says nothing about it, and its requests are through by then or not.

    Our worker's histogram leaves plain steps out, so it tells where speculation began. SGLang's
    counts them as verifies that accepted nothing. There, the first step is the one behind the first
    in which the request got more than one token: steps before it that accepted nothing cannot be
    told from plain ones and are lost, which flatters that worker.

    Returns:
        ``steps``: for each request its accept lengths; ``plain_tokens``: for each, its tokens
        before; ``merged``: requests left out; ``lag_steps``: from the fillers' end to the first
        step, the median.
    """
    fillers_end_s = max(record.end_s for record in fillers)
    streams = [
        stream for record in matter if (stream := _read(record, fillers_end_s, plain_tokens))
    ]
    steps, before, lags = [], [], []
    for stream in streams:
        # The last chunk is cut by the length of the answer.
        window = stream.chunks[stream.first : -1][:WINDOW_STEPS]
        if len(window) >= FIRST_STEPS:
            steps.append(list(window))
            before.append(sum(stream.chunks[: stream.first]))
            lags.append(stream.first - stream.back)
    return {
        "steps": steps,
        "plain_tokens": before,
        "merged": len(matter) - len(streams),
        "lag_steps": statistics.median(lags) if lags else None,
    }


def _read(record: RequestRecord, fillers_end_s: float, plain_tokens: int) -> _Stream | None:
    """None where chunks are no steps, as far as it matters."""
    chunks, counted = record.chunk_tokens, record.accepted_histogram
    if not counted:
        return None
    back = sum(at <= fillers_end_s for at in record.token_times_s)
    verifies = sum(counted)
    if verifies < len(chunks) - 1 and _same(chunks[-verifies:], counted):
        return _Stream(chunks, back, len(chunks) - verifies)
    if verifies == len(chunks) - 1 and _same(chunks[1:], counted):
        # Arrival times of two requests are not that exact; half way is safely off.
        half_way = back // 2
        if any(tokens > 1 for tokens in chunks[1:half_way]):
            reached = itertools.accumulate(chunks)
            at = next((i for i, tokens in enumerate(reached, 1) if tokens >= plain_tokens), None)
            return None if at is None else _Stream(chunks, at, at)  # It was never off.
        success = _first_above_one(chunks, half_way)
        return None if success is None else _Stream(chunks, back, success + 1)
    # Steps that were merged while nothing was accepted do no harm: a step was a token.
    success = _first_above_one(chunks, back)
    if success is None:
        return None
    without_plain = [counted[0] - (sum(chunks[:success]) - 1), *counted[1:]]
    if min(without_plain) >= 0 and _same(chunks[success:], without_plain):
        return _Stream(chunks, back, success + 1)
    return None


def _first_above_one(chunks: Sequence[int], start: int) -> int | None:
    return next((i for i in range(start, len(chunks)) if chunks[i] > 1), None)


def _same(chunks: Sequence[int], counted: Sequence[int]) -> bool:
    """Whether chunks are what the verifies gave; the last chunk may be shorter."""
    missing = Counter(dict(enumerate(counted)))
    missing.subtract(tokens - 1 for tokens in chunks[:-1])
    left = [(drafts, number) for drafts, number in missing.items() if number]
    return len(left) == 1 and left[0][1] == 1 and left[0][0] >= chunks[-1] - 1
