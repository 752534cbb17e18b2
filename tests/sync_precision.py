"""Entries of the draft in less than float32: those of the KV sync are those of a full extend."""

from collections.abc import Callable, Sequence

from known_texts import KnownText
from probed_server import ProbedServer
from worker_scenarios import Entries

PLAIN_STEPS = 50


def require_entries_of_a_full_extend(
    start_probed: Callable[..., ProbedServer],
    texts: Sequence[KnownText],
    *flags: str,
    relative: float,
) -> None:
    """Serve the same with both draft syncs and compare.

    Args:
        start_probed: the fixture.
        texts: at least four.
        flags: of both servers.
        relative: most that entries may differ by, of the largest, and on average.
    """
    (tokens, written), (expected_tokens, expected) = (
        _served(start_probed, texts[:4], *flags, "--speculative-draft-sync", sync)
        for sync in ("kv", "extend")
    )
    # Elsewhere a near-tie of two logits was decided otherwise.
    same = [i for i in range(4) if tokens[i] == expected_tokens[i]]
    assert len(same) >= 2
    for i in same:
        mine, theirs = written[i], expected[i]
        assert min(len(mine[0]), len(theirs[0])) >= len(texts[i].prompt) + PLAIN_STEPS - 5
        for a, b in zip(mine, theirs, strict=True):
            known = min(len(a), len(b))
            size, difference = b[:known].abs(), (a[:known] - b[:known]).abs()
            assert size.max() > 0.5
            assert difference.max() <= relative * size.max()
            assert difference.mean() <= relative * size.mean()


def _served(
    start_probed: Callable[..., ProbedServer], texts: Sequence[KnownText], *flags: str
) -> tuple[list[list[int]], list[Entries]]:
    """Tokens and entries of requests that plain steps decode, and at the end speculative ones:
    entries wait until speculation needs them."""
    server = start_probed(*flags, "--speculative-dynamic", "never")
    server.schedule(f"{PLAIN_STEPS}p 3s")
    with server.watching_draft_kv():
        waiting = [
            server.submit(text.prompt, rid=f"text-{i}", max_new_tokens=PLAIN_STEPS + 10)
            for i, text in enumerate(texts)
        ]
        tokens = [future.result().token_ids for future in waiting]
    entries = dict(server.draft_kv())
    server.stop()
    return tokens, [entries[f"text-{i}"][0] for i in range(len(texts))]
