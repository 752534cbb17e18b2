"""Entries of the draft in less than float32: those of the KV sync are those of a full extend."""

from collections.abc import Callable, Sequence
from itertools import takewhile

from known_texts import KnownText
from probed_server import ProbedServer
from worker_scenarios import Entries, tokens_of

REQUESTS = 4
PLAIN_STEPS = 50


def require_entries_of_a_full_extend(
    start_probed: Callable[..., ProbedServer],
    texts: Sequence[KnownText],
    *flags: str,
    relative: float,
) -> None:
    """Serve the same with both draft syncs and compare entries, as far as tokens are the same: a
    near-tie of two logits may be decided otherwise.

    Args:
        start_probed: the fixture.
        texts: at least four.
        flags: of both servers.
        relative: most that an entry may differ by, of the largest; a quarter of it on average, of
            the average, which is ten times what rounding of the target does.
    """
    (tokens, written), (expected_tokens, expected) = (
        _served(start_probed, texts[:REQUESTS], sync, *flags) for sync in ("kv", "extend")
    )
    generated = 0
    for i, text in enumerate(texts[:REQUESTS]):
        both = zip(tokens[i], expected_tokens[i], strict=True)
        same = len(text.prompt) + sum(1 for _ in takewhile(lambda two: two[0] == two[1], both))
        # An entry is made of the token behind its position too.
        known = min(len(written[i][0]), len(expected[i][0]), same - 1)
        assert known >= len(text.prompt) - 1
        generated += known - len(text.prompt)
        for mine, theirs in zip(written[i], expected[i], strict=True):
            size, difference = theirs[:known].abs(), (mine[:known] - theirs[:known]).abs()
            assert size.mean() > 0.1
            assert difference.max() <= relative * size.max()
            assert difference.mean() <= relative / 4 * size.mean()
    assert generated >= 2 * (PLAIN_STEPS - 10)


def _served(
    start_probed: Callable[..., ProbedServer], texts: Sequence[KnownText], sync: str, *flags: str
) -> tuple[list[list[int]], list[Entries]]:
    """Tokens and entries of requests that plain steps decode, and at the end speculative ones:
    entries wait until speculation needs them."""
    server = start_probed(
        *flags, "--speculative-dynamic", "never", "--speculative-draft-sync", sync
    )
    server.schedule(f"{PLAIN_STEPS}p 3s")
    rids = [f"text-{i}" for i in range(len(texts))]
    # In one request, so that all are decoded in the same batches.
    with server.watching_draft_kv():
        answers = server.generate(
            [text.prompt for text in texts], rids, max_new_tokens=PLAIN_STEPS + 10
        )
    state = server.state()
    assert state["draft_sync"] == sync
    assert state["plain_tokens"] >= len(texts) * (PLAIN_STEPS - 10)
    entries = dict(server.draft_kv())
    server.stop()
    return tokens_of(answers), [entries[rid][0] for rid in rids]
