"""KV pools that run full, in each mode and around a switch: requests are retracted, and right."""

import pytest
from worker_scenarios import FROM_THE_REFERENCE, of_many_lengths, serve_watched

FLAGS = ("--speculative-dynamic", "never", "--context-length", "400")
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


def test_retracted_requests_end_right(server, texts, runs):
    before = server.log.read_text().count("#retracted_reqs")
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts[:10], 110, 150), runs)

    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
    assert server.log.read_text().count("#retracted_reqs") > before
