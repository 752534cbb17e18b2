"""Turns that share a prefix, some decoded while off; KV pages of many tokens."""

import pytest
from worker_scenarios import FROM_THE_REFERENCE, Request, of_many_lengths, serve, serve_watched

TURNS = ["1p", "1s", "3s 5p", "5p 3s"]


def test_a_turn_finds_the_turns_before(server, stock_server, texts, runs):
    """All of them but one token: SGLang's cache keys pairs of tokens when a server speculates, with
    this package or without."""
    for one in (server, stock_server):
        one.wait_until_idle()  # flushes the cache
    for turn in range(3):
        requests = [Request(text, 30, given=30 * turn) for text in texts[:6]]
        outcome, draft_kv = serve_watched(server, requests, runs)
        waiting = [stock_server.submit(r.prompt, max_new_tokens=r.tokens) for r in requests]

        outcome.require_right()
        assert draft_kv.worst <= FROM_THE_REFERENCE
        mine = [answer.meta["cached_tokens"] for answer in outcome.answers.values()]
        theirs = [future.result().meta["cached_tokens"] for future in waiting]
        if turn:
            assert mine == [found - 1 for found in theirs]


def test_turns_decoded_in_one_mode_and_then_in_another(server, texts):
    """The draft reads what they left: acceptance is as if never off."""
    server.wait_until_idle()  # flushes the cache
    for turn, runs in enumerate(TURNS):
        requests = [Request(text, 30, given=30 * turn) for text in texts[:6]]
        outcome, draft_kv = serve_watched(server, requests, runs)
        outcome.require_right()
        assert draft_kv.worst <= FROM_THE_REFERENCE
        if turn:
            for rid, request in outcome.requests.items():
                assert outcome.answers[rid].meta["cached_tokens"] >= len(request.prompt) - 3


@pytest.mark.parametrize("page_size", [16, 64])
def test_pages_are_free_after_many_switches(start_probed, texts, page_size):
    server = start_probed("--speculative-dynamic", "never", "--page-size", str(page_size))
    for runs in ("1s 1p", "1p 2s", "4s 1p"):
        outcome = serve(server, of_many_lengths(texts[:11], 3, 70), runs)
        outcome.require_right()
        assert outcome.switches() > 8
        server.wait_until_idle()
    for turn, runs in enumerate(TURNS):
        requests = [Request(text, 30, given=30 * turn) for text in texts[:3]]
        outcome, draft_kv = serve_watched(server, requests, runs)
        outcome.require_right()
        assert draft_kv.worst <= FROM_THE_REFERENCE
        if turn:
            for rid, request in outcome.requests.items():
                found = outcome.answers[rid].meta["cached_tokens"]
                assert found >= (len(request.prompt) - 3) // page_size * page_size
    server.wait_until_idle()
    server.stop()
