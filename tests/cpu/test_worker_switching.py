"""Switching changes nothing that a client sees, and every draft is as if it had never been off."""

import itertools
import time

import pytest
from worker_scenarios import (
    Request,
    follows_the_threshold,
    of_many_lengths,
    random_case,
    require_same_globals_after_switches,
    serve,
)


@pytest.mark.parametrize("runs", ["1s 1p", "2s 2p", "7s 7p", random_case(1), random_case(2, 3)])
def test_requests_that_come_and_go_through_forced_switches(server, texts, runs):
    outcome = serve(server, of_many_lengths(texts, 30, 120), runs, apart_s=0.05)

    outcome.require_right()
    assert {step.speculative for step in outcome.steps} == {True, False}
    assert outcome.switches() >= 4
    assert {accept[2] for accept in outcome.accepts()} == {1, 2, 3}
    assert max(len(step.rows) for step in outcome.steps) > 2


def test_never_and_always(server, texts):
    for runs in ("1p", "1s"):
        outcome = serve(server, of_many_lengths(texts, 10, 60), runs)
        outcome.require_right()
        assert outcome.switches() == 0


def test_the_greedy_text_is_that_of_a_server_without_speculation(stock_server, texts):
    answers = stock_server.generate([text.prompt for text in texts], max_new_tokens=200)

    assert [answer.token_ids for answer in answers] == [text.answer[:200] for text in texts]


def test_the_threshold_decides_from_the_batch_size(server, texts):
    server.schedule("")
    server.new_steps()
    waiting = [server.submit(texts[0].prompt, rid="alone", max_new_tokens=260)]
    for wave in range(3):
        time.sleep(0.3)
        for i, text in enumerate(texts[1:7]):
            rid = f"wave-{wave}-{i}"
            waiting.append(server.submit(text.prompt, rid=rid, max_new_tokens=15 + 6 * i))
    answers = [future.result() for future in waiting]
    steps = server.new_steps()

    expected = [texts[0].answer[:260]]
    expected += [text.answer[: 15 + 6 * i] for i, text in enumerate(texts[1:7])] * 3
    assert [answer.token_ids for answer in answers] == expected
    assert sum(a.speculative != b.speculative for a, b in itertools.pairwise(steps)) >= 2
    assert steps[-1].speculative, "one request is left in the end"
    assert follows_the_threshold(steps)


def test_one_request_lives_through_256_plain_steps(server, texts):
    outcome = serve(server, [Request(texts[i], 430) for i in (0, 4, 8)], "6s 260p 200s")

    outcome.require_right()
    resumed = [step for step in outcome.steps if step.resumed]
    assert len(resumed) == 1
    after = [accept for accept in outcome.accepts() if accept[1] > 260]
    assert len(after) > 100


def test_switches_are_logged(server):
    assert "Decode is plain now" in server.log.read_text()


def test_sglangs_globals_are_as_before(server, texts):
    require_same_globals_after_switches(server, texts)
