"""Two tensor-parallel ranks decide alike at every step; each keeps its part of the draft's KV."""

import pytest
from worker_scenarios import THRESHOLD_FLAGS, Request, of_many_lengths, random_case, serve_watched

FROM_THE_REFERENCE = 5e-5


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed("--tp-size", "2", *THRESHOLD_FLAGS)


@pytest.mark.parametrize("runs", ["", "1s 1p", "2s 17p", random_case(7)])
def test_ranks_decide_alike(server, texts, runs):
    server.new_steps(rank=1)
    requests = of_many_lengths(texts[:7], 20, 60)
    outcome, draft_kv = serve_watched(server, requests, runs, apart_s=0.1 if runs else 0)
    other_rank = [step for step in server.new_steps(rank=1) if step.rows]
    server.wait_until_idle()

    outcome.require_right()
    assert outcome.steps == other_rank
    assert {step.speculative for step in outcome.steps} == {True, False}
    assert draft_kv.snapshots > 30
    assert draft_kv.worst <= FROM_THE_REFERENCE


def test_ranks_agree_on_a_sample(server, texts):
    """A rank that samples another token hangs or ends up with other lengths."""
    server.schedule("2s 2p")
    answers = server.generate(
        [text.prompt for text in texts[:3]], max_new_tokens=40, temperature=1.0, top_p=0.9
    )
    steps, other_rank = server.new_steps(0), server.new_steps(1)

    assert [len(answer.token_ids) for answer in answers] == [40] * 3
    assert steps == other_rank
    server.wait_until_idle()


def test_a_long_off_period(server, texts):
    outcome, _ = serve_watched(server, [Request(texts[4], 200)], "2s 100p 100s")

    outcome.require_right()
    assert len([accept for accept in outcome.accepts() if accept[1] > 100]) > 20
    server.wait_until_idle()
