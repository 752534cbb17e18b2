"""Each fault of the probe is caught by a comparison that the other tests rely on.

What is compared here is what they compare; only the server is broken. One server serves them all,
one fault after the other, the deadly ones last.
"""

import pytest
from live_server import ServerError
from worker_scenarios import (
    THRESHOLD_FLAGS,
    Request,
    follows_the_threshold,
    of_many_lengths,
    serve,
    serve_watched,
)

FROM_THE_REFERENCE = 5e-5


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed(*THRESHOLD_FLAGS)


@pytest.fixture
def plant(server):
    yield server.plant
    server.plant("")


def broken(server, texts, runs):
    return serve_watched(server, of_many_lengths(texts[:6], 40, 80), runs, apart_s=0.02)


def test_nothing_is_caught_without_a_fault(server, texts):
    outcome, draft_kv = broken(server, texts, "2s 3p")

    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
    server.wait_until_idle()


@pytest.mark.parametrize(
    "fault",
    [
        "forget_the_pending_write",
        "wrong_slot",
        "wrong_draft_position",
        "tokens_of_the_row_before",
    ],
)
def test_a_wrong_draft_entry_is_seen(server, plant, texts, fault):
    """In accept lengths too, but for the wrong position: the trained draft hardly minds it."""
    plant(fault)
    outcome, draft_kv = broken(server, texts, "2s 5p")

    assert outcome.wrong_tokens() == [], "drafts are only proposals"
    assert draft_kv.worst > 0.1
    assert outcome.wrong_accepts() or fault == "wrong_draft_position"
    server.wait_until_idle()


def test_rows_that_resume_without_a_proposal_are_seen_in_accept_lengths(server, plant, texts):
    plant("proposal_of_the_wrong_rows")
    outcome, _ = broken(server, texts, "2s 5p")

    assert outcome.wrong_tokens() == []
    assert len(outcome.wrong_accepts()) > 10
    server.wait_until_idle()


def test_a_wrong_chain_position_is_seen_in_accept_lengths(server, plant, texts):
    """Always speculating, the positions of the verifies are the same in every run."""
    plant("chain_position")
    outcome = serve(server, [Request(text, 200) for text in texts], "1s")

    assert outcome.wrong_tokens() == []
    assert outcome.wrong_accepts()
    server.wait_until_idle()


@pytest.mark.parametrize("fault", ["stride_of_a_verify", "length_not_advanced", "verify_length"])
def test_a_wrong_step_is_seen_in_tokens(server, plant, texts, fault):
    plant(fault)
    outcome, _ = broken(server, texts, "2s 5p")

    assert outcome.wrong_tokens()


def test_a_dwell_that_is_ignored_is_seen_in_the_modes(server, plant, texts):
    for fault in ("", "dwell_ignored"):
        plant(fault)
        steps = around_the_threshold(server, texts)
        assert follows_the_threshold(steps) == (not fault)


def around_the_threshold(server, texts):
    """One long request, and others that come and go beside it within the dwell."""
    server.schedule("")
    server.new_steps()
    alone = server.submit(texts[0].prompt, max_new_tokens=260)
    for _ in range(6):
        server.generate([text.prompt for text in texts[1:6]], max_new_tokens=4)
    alone.result()
    server.wait_until_idle()
    return server.new_steps()


def test_a_draft_that_computes_nan_changes_no_token(server, plant, texts):
    plant("nan_in_the_draft")
    outcome, _ = broken(server, texts, "2s 2p")

    assert outcome.wrong_tokens() == []
    assert {accept[3] for accept in outcome.accepts()[20:]} == {1}, "no such draft is accepted"
    plant("")
    server.wait_until_idle()
    serve(server, [Request(texts[7], 60)], "1s 1p").require_right()


def test_nothing_reads_what_is_not_written_yet(server, plant, texts):
    plant("poisoned_reserve")
    outcome, draft_kv = broken(server, texts, "2s 3p")

    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
    server.wait_until_idle()


def test_a_leaked_slot_ends_the_server(server, plant, texts):
    """SGLang's own check, after every iteration of the scheduler."""
    plant("leaked_slot")
    with pytest.raises(ServerError):
        serve(server, [Request(texts[0], 20)], "1s 1p")
    assert "Leak Detected" in server.log.read_text()
