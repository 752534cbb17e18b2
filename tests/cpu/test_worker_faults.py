"""Each fault of the probe is caught by a comparison that the other tests rely on.

What is compared here is what they compare; only the server is broken. One server serves them all,
one fault after the other, the deadly ones last.
"""

import time

import pytest
from live_server import ServerError
from worker_scenarios import Request, of_many_lengths, serve, serve_watched

from sglang_specv2.policy import Mode, ThresholdPolicy

FROM_THE_REFERENCE = 5e-5


@pytest.fixture(scope="module")
def server(start_probed):
    flags = ("--speculative-disable-batch-threshold", "2", "--speculative-switch-min-dwell", "6")
    return start_probed(*flags)


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
    "fault", ["forget_the_pending_write", "wrong_slot", "wrong_draft_position"]
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
        assert follows_the_policy(steps) == (not fault)


def around_the_threshold(server, texts):
    """One long request, and others that come and go beside it within the dwell."""
    server.schedule("")
    server.new_steps()
    waiting = [server.submit(texts[0].prompt, max_new_tokens=220)]
    for _ in range(8):
        waiting += [server.submit(text.prompt, max_new_tokens=3) for text in texts[1:4]]
        time.sleep(0.05)
    for future in waiting:
        future.result()
    server.wait_until_idle()
    return server.new_steps()


def follows_the_policy(steps):
    """Whether some state of a policy with the same thresholds decides as the steps show."""
    for steps_since_switch in range(-1, 7):
        policy = ThresholdPolicy(disable_above=2, enable_at=1, min_dwell=6)
        # As left by the steps before the first one seen.
        policy._mode = Mode.SPECULATIVE if steps[0].speculative else Mode.PLAIN
        policy._steps_since_switch = steps_since_switch
        modes = [policy.decide(len(step.rows)).mode is Mode.SPECULATIVE for step in steps]
        if modes == [step.speculative for step in steps]:
            return True
    return False


def test_a_leaked_slot_ends_an_idle_server(server, plant, texts):
    plant("leaked_slot")
    serve(server, [Request(texts[0], 20)], "1s 1p")

    with pytest.raises((ServerError, OSError)):
        stay_idle(server)
    assert "leak" in server.log.read_text()


def stay_idle(server):
    for _ in range(20):
        server.wait_until_idle()
        time.sleep(0.5)
