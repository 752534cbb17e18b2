"""Pools that run full, pages of many tokens, and texts that end at the context's limit."""

import pytest
from live_server import ServerError
from worker_scenarios import Request, of_many_lengths, serve, serve_watched

CONTEXT = 400
DRAFT_TOKENS = 3
"""SGLang keeps this many positions free below the context's limit when it speculates."""
FROM_THE_REFERENCE = 5e-5
FLAGS = ("--speculative-dynamic", "never", "--context-length", str(CONTEXT))
HOPEFUL = {"SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "4"}
"""The scheduler lets requests in as if each were to add this many tokens."""


@pytest.fixture(scope="module")
def full(start_probed):
    """The pool holds half of what the requests need in the end."""
    return start_probed(*FLAGS, "--max-total-tokens", "900", env=HOPEFUL)


@pytest.fixture(scope="module")
def paged(start_probed):
    """Every seventh step of the scheduler retracts, whether or not the pool is full."""
    env = HOPEFUL | {"SGLANG_TEST_RETRACT": "1", "SGLANG_TEST_RETRACT_INTERVAL": "7"}
    return start_probed(*FLAGS, "--max-total-tokens", "1536", "--page-size", "16", env=env)


@pytest.fixture(params=["full", "paged"])
def server(request):
    server = request.getfixturevalue(request.param)
    yield server
    server.wait_until_idle()


@pytest.mark.parametrize("runs", ["1s", "1p", "1s 1p", "2s 5p"])
def test_retracted_requests_end_right(server, texts, runs):
    before = server.log.read_text().count("#retracted_reqs")
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts[:10], 120, 200), runs)

    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
    assert server.log.read_text().count("#retracted_reqs") > before


@pytest.mark.parametrize("runs", ["1s", "1p", "1s 1p"])
def test_prompt_and_output_end_at_the_context_limit(paged, texts, runs):
    limits = [Request(text, CONTEXT - DRAFT_TOKENS - len(text.prompt)) for text in texts[:3]]
    outcome = serve(paged, limits, runs)
    paged.wait_until_idle()

    outcome.require_right()
    one_more = [Request(texts[0], limits[0].tokens + 1)]
    with pytest.raises(ServerError, match="maximum context length"):
        serve(paged, one_more, runs)
    for answer in outcome.answers.values():
        assert answer.meta["finish_reason"]["type"] == "length"


def test_pages_are_free_after_many_switches(paged, texts):
    for runs in ("1s 1p", "1p 2s", "5s 1p"):
        for requests in (of_many_lengths(texts[:11], 3, 40), [Request(texts[0], 200)]):
            outcome = serve(paged, requests, runs)
            outcome.require_right()
            assert outcome.switches() > 5
        paged.wait_until_idle()
