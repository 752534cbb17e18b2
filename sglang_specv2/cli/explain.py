"""``sglang-specv2 doctor --explain``: what the numbers of a shape error are made of.

An error like "The size of tensor a (160) must match the size of tensor b (2)" comes from deep
inside a kernel and counts rows. Under speculation, rows are requests times rows per request, and
rows per request is one of a few numbers that the flags fix.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sglang_specv2.errors import ConfigError

_SHAPES = (
    re.compile(r"tensor a \((\d+)\).*?tensor b \((\d+)\)", re.S),
    re.compile(r"[Ee]xpected size (\d+) but got size (\d+)"),
    re.compile(r"shape mismatch.*?\[(\d+)[^]]*\].*?\[(\d+)[^]]*\]", re.S),
)

LARGEST_USUAL_DRAFT = 64
"""Draft tokens per request beyond which a decomposition is not worth listing."""


@dataclass(frozen=True)
class Shape:
    """Rows per request that the flags fix; None where a flag was not given.

    Attributes:
        num_draft_tokens: rows per request of a verify.
        topk: rows per request of a draft step.
        max_running_requests: the largest batch.
    """

    num_draft_tokens: int | None = None
    topk: int | None = None
    max_running_requests: int | None = None


@dataclass(frozen=True)
class Decomposition:
    """``rows = requests × per_request``, and what such rows are."""

    rows: int
    requests: int
    per_request: int
    meaning: str

    def __str__(self) -> str:
        requests = "1 request" if self.requests == 1 else f"{self.requests} requests"
        if self.per_request == 1:
            return f"{self.rows} = {requests}: {self.meaning}"
        unit = "rows of the draft's tree" if "draft step" in self.meaning else "draft tokens"
        return f"{self.rows} = {requests} × {self.per_request} {unit}: {self.meaning}"


def sizes(message: str) -> tuple[int, int]:
    """The two sizes that a shape error names.

    Raises:
        ConfigError: the text is no such error.
    """
    for pattern in _SHAPES:
        found = pattern.search(message)
        if found:
            return int(found[1]), int(found[2])
    raise ConfigError(
        '--explain: expected a shape error such as "The size of tensor a (160) must match the '
        f'size of tensor b (2)", got {message!r}'
    )


def decompose(rows: int, shape: Shape) -> list[Decomposition]:
    """Every way in which ``rows`` can be a batch, likeliest first.

    With the flags known, those are the verify, the draft step and one row a request. Without
    ``num_draft_tokens``, every divisor that can be a number of draft tokens counts; the likelier
    are powers of two and small numbers of requests.
    """
    found = list(_candidates(rows, shape))
    limit = shape.max_running_requests
    possible = [d for d in found if limit is None or d.requests <= limit]
    return possible or found


def _candidates(rows: int, shape: Shape) -> Iterator[Decomposition]:
    verify = "a batch prepared for a verify"
    if shape.num_draft_tokens is not None:
        if shape.num_draft_tokens > 1 and rows % shape.num_draft_tokens == 0:
            requests = rows // shape.num_draft_tokens
            yield Decomposition(rows, requests, shape.num_draft_tokens, verify)
    else:
        widths = [n for n in range(2, min(rows, LARGEST_USUAL_DRAFT) + 1) if rows % n == 0]
        widths.sort(key=lambda n: (n & (n - 1) != 0, abs(n - 8), n))
        for width in widths:
            yield Decomposition(rows, rows // width, width, verify)
    if shape.topk is not None and shape.topk > 1 and rows % shape.topk == 0:
        yield Decomposition(rows, rows // shape.topk, shape.topk, "a batch in a draft step")
    yield Decomposition(rows, rows, 1, "a batch prepared for a plain step")


def explain(message: str, shape: Shape) -> str:
    """Says in words what the two sizes of a shape error are, and what to do.

    Raises:
        ConfigError: the text names no two sizes.
    """
    a, b = sizes(message)
    larger, smaller = max(a, b), min(a, b)
    lines = [f"{larger} rows met a place for {smaller}."]
    if shape.num_draft_tokens is None:
        lines.append(
            "The number of draft tokens is not given, so these are guesses; add "
            "--speculative-num-draft-tokens (or --speculative-num-steps) as served."
        )
    for rows in (larger, smaller):
        lines.append("")
        lines += [f"  {decomposition}" for decomposition in decompose(rows, shape)]
    inflated = decompose(larger, shape)[0]
    lines += ["", *_advice(inflated, larger, smaller)]
    return "\n".join(lines)


def _advice(inflated: Decomposition, larger: int, smaller: int) -> list[str]:
    if inflated.per_request == 1:
        return [
            f"Neither size is a multiple of the draft tokens a request has: {larger} and {smaller} "
            "do not come from speculation. Look at the model and its attention backend."
        ]
    requests = "1 request was" if inflated.requests == 1 else f"{inflated.requests} requests were"
    other = (
        "the same requests at one row each"
        if inflated.requests == smaller
        else f"a plain step of another batch, of {smaller}"
    )
    return [
        f"Likeliest: {requests} prepared for a verify of {inflated.per_request} tokens each, and "
        f"then met {other}.",
        "What to do: run `sglang-specv2 doctor` with the server's flags. It lists the plugins of "
        "this installation; look for one that turns speculation off after the batch is prepared. "
        "sglang-specv2 decides before, and checks. Until that is found, serve with "
        "--speculative-dynamic always.",
    ]
