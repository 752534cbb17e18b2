"""What one request and one round of requests gave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class RequestRecord:
    """One streamed request as its client saw it.

    Attributes:
        start_s: when it was sent, on the client's monotonic clock.
        token_times_s: arrival of each chunk on the same clock.
        chunk_tokens: new tokens of each chunk.
        accept_length: tokens per verify as the server says at the end; None where it does not.
        verifies: of this request, where the server says so.
        accepted_histogram: how many of the verifies accepted 0, 1, 2 … drafts, likewise.
        error: why it did not come to its end.
        left: the client hung up on purpose.
    """

    start_s: float
    token_times_s: list[float] = field(default_factory=list)
    chunk_tokens: list[int] = field(default_factory=list)
    accept_length: float | None = None
    verifies: int | None = None
    accepted_histogram: list[int] | None = None
    error: str | None = None
    left: bool = False

    @property
    def tokens(self) -> int:
        return sum(self.chunk_tokens)

    @property
    def end_s(self) -> float:
        return self.token_times_s[-1] if self.token_times_s else self.start_s

    @property
    def ttft_s(self) -> float | None:
        """From sending to the first chunk."""
        return self.token_times_s[0] - self.start_s if self.token_times_s else None

    def inter_token_s(self) -> list[float]:
        """The wait for each token after the first chunk.

        The tokens of one chunk share its wait evenly, as in SGLang's bench_serving.
        """
        waits: list[float] = []
        for i in range(1, len(self.token_times_s)):
            tokens = self.chunk_tokens[i]
            if tokens > 0:
                wait = self.token_times_s[i] - self.token_times_s[i - 1]
                waits += [wait / tokens] * tokens
        return waits


def percentile(values: Sequence[float], percent: float) -> float | None:
    """By linear interpolation between the closest ranks; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = (len(ordered) - 1) * percent / 100
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def summarize(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """Throughput and latencies of the requests of one round.

    ``output_tokens_s`` is all tokens over the time from the first request sent to the last token.

    Raises:
        ValueError: no token arrived.
    """
    answered = [record for record in records if record.tokens]
    if not answered:
        reasons = {record.error for record in records if record.error}
        raise ValueError(f"no tokens from {len(records)} requests: {sorted(reasons)}")
    seconds = max(r.end_s for r in answered) - min(r.start_s for r in answered)
    tokens = sum(record.tokens for record in answered)
    ttft_ms = [1000 * r.ttft_s for r in answered if r.ttft_s is not None]
    inter_token_ms = [1000 * wait for record in answered for wait in record.inter_token_s()]
    return {
        "requests": len(records),
        "failed_requests": sum(record.error is not None for record in records),
        "output_tokens": tokens,
        "seconds": seconds,
        "output_tokens_s": tokens / seconds,
        **{f"ttft_ms_p{p}": percentile(ttft_ms, p) for p in (50, 95, 99)},
        **{f"itl_ms_p{p}": percentile(inter_token_ms, p) for p in (50, 95, 99)},
        "accept_length": _accept_length(answered),
    }


def _accept_length(records: Sequence[RequestRecord]) -> float | None:
    """Tokens per verify over the requests that say; each counts by its verifies."""
    verifies = tokens = 0.0
    for record in records:
        if record.accept_length:
            n = record.tokens / record.accept_length if record.verifies is None else record.verifies
            verifies += n
            tokens += n * record.accept_length
    return tokens / verifies if verifies else None
