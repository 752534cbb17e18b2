"""Plain definitions of the functions in kernels, allocation, sampling and attention.

Written to be read, on Python lists, one element at a time; the tests hold the torch versions
against them. Arguments mean what they mean there.
"""

import math
from collections.abc import Sequence

Table = list[list[int]]
"""The KV slot of each position (column) of each request slot (row)."""


def write_slots(
    table: Table,
    rows: Sequence[int],
    start: Sequence[int],
    end: Sequence[int],
    slots: Sequence[int],
) -> None:
    """``assign_req_to_token_pool``."""
    upcoming = iter(slots)
    for row, first, past in zip(rows, start, end, strict=True):
        for column in range(first, past):
            table[row][column] = next(upcoming)


def read_slots(
    table: Table, rows: Sequence[int], start: Sequence[int], end: Sequence[int]
) -> list[int]:
    """``assign_extend_cache_locs``; with ``end = start + topk * num_steps`` the draft's version."""
    return [
        table[row][column]
        for row, first, past in zip(rows, start, end, strict=True)
        for column in range(first, past)
    ]


def bonus_tokens(accept_tokens: Sequence[Sequence[int]], accept_lens: Sequence[int]) -> list[int]:
    """``fill_bonus_tokens``."""
    return [tokens[n - 1] for tokens, n in zip(accept_tokens, accept_lens, strict=True)]


def allocate(
    prefix_lens: Sequence[int],
    seq_lens: Sequence[int],
    last_loc: Sequence[int],
    free_pages: Sequence[int],
    page_size: int,
) -> list[int]:
    """``alloc_extend``."""
    pages = iter(free_pages)
    slots = []
    for prefix_len, seq_len, slot in zip(prefix_lens, seq_lens, last_loc, strict=True):
        for position in range(prefix_len, seq_len):
            starts_a_page = position % page_size == 0
            slot = next(pages) * page_size if starts_a_page else slot + 1
            slots.append(slot)
    return slots


def greedy_chain(drafts: Sequence[int], choices: Sequence[int]) -> list[int]:
    """The tokens that one request gains in ``verify_chain_greedy``.

    ``choices[j]`` is the target's token after j drafts, so there is one more of them.
    """
    gained: list[int] = []
    for draft, choice in zip(drafts, choices, strict=False):
        gained.append(choice)
        if draft != choice:
            return gained
    return [*gained, choices[len(drafts)]]


def sampled_chain(
    drafts: Sequence[int],
    probs: Sequence[Sequence[float]],
    coins: Sequence[float],
    final_coin: float,
    threshold_single: float,
    threshold_acc: float,
) -> list[int]:
    """The tokens that one request gains in ``verify_chain_sampling``; ``probs`` has a row more."""
    gained: list[int] = []
    for draft, row, coin in zip(drafts, probs, coins, strict=False):
        accept = coin * threshold_acc < row[draft] or row[draft] >= threshold_single
        if not accept:
            others = [0.0 if token == draft else p for token, p in enumerate(row)]
            return [*gained, inverse_cdf(others, final_coin)]
        gained.append(draft)
    return [*gained, inverse_cdf(probs[len(drafts)], final_coin)]


def inverse_cdf(weights: Sequence[float], coin: float) -> int:
    """The first token whose cumulated weight exceeds ``coin`` of the whole; 0 if all weigh 0."""
    goal, mass = coin * sum(weights), 0.0
    for token, weight in enumerate(weights):
        mass += weight
        if mass > goal:
            return token
    return 0


def top_k(probs: Sequence[float], k: int) -> list[float]:
    """``top_k_renorm_prob`` of one row."""
    return keep_from(probs, sorted(probs, reverse=True)[min(k, len(probs)) - 1])


def top_p(probs: Sequence[float], p: float) -> list[float]:
    """``top_p_renorm_prob`` of one row."""
    mass, least = 0.0, math.inf
    for value in sorted(probs, reverse=True):
        if mass >= p:
            break
        mass, least = mass + value, value
    return keep_from(probs, least)


def keep_from(probs: Sequence[float], least: float) -> list[float]:
    """``probs`` without those under ``least``, renormalised."""
    kept = [p if p >= least else 0.0 for p in probs]
    return [p / sum(kept) for p in kept]


def murmur_hash32(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0, for whole words (public domain, by Austin Appleby)."""

    def multiply(x: int, y: int) -> int:
        return x * y % 2**32

    def rotate_left(x: int, bits: int) -> int:
        return (x << bits) % 2**32 | x >> (32 - bits)

    h = 0
    for start in range(0, len(data), 4):
        word = int.from_bytes(data[start : start + 4], "little")
        h ^= multiply(rotate_left(multiply(word, 0xCC9E2D51), 15), 0x1B873593)
        h = (multiply(rotate_left(h, 13), 5) + 0xE6546B64) % 2**32
    h ^= len(data)
    h = multiply(h ^ h >> 16, 0x85EBCA6B)
    h = multiply(h ^ h >> 13, 0xC2B2AE35)
    return h ^ h >> 16


def attention(
    query: Sequence[float],
    keys: Sequence[Sequence[float]],
    values: Sequence[Sequence[float]],
    scale: float,
) -> list[float]:
    """One head's output for one query that sees all of ``keys``."""
    scores = [scale * sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    weights = [math.exp(score - max(scores)) for score in scores]
    return [
        sum(w * value[i] for w, value in zip(weights, values, strict=True)) / sum(weights)
        for i in range(len(values[0]))
    ]
