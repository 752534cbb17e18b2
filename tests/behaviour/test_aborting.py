"""A request that is ended from outside leaves the others alone and every slot free."""

import random
import time

import pytest
import requests
from live_server import generate_body
from worker_scenarios import Outcome, Request, in_step


@pytest.mark.parametrize("runs", ["1s 1p", "3s 3p"])
def test_at_any_distance_from_a_switch(server, texts, runs):
    rng, period = random.Random(5), int(runs[0])
    wanted = set(range(period))  # 0: in the step of a switch; period - 1: in the step before one
    distances = set()
    for attempt in range(40):
        others = [Request(text, 70) for text in texts[:3]]
        outcome, steps = serve_and_abort(server, others, texts[5], runs, 0.05 + 0.3 * rng.random())
        assert outcome.wrong_tokens() == []
        last = max((i for i, step in enumerate(steps) if in_step(["aborted"], step)), default=None)
        if last is not None:
            modes = [step.speculative for step in steps[: last + 1]]
            run_length = next((n for n in range(last) if modes[last - n] != modes[last]), 0)
            distances.add(run_length - 1)
        if attempt >= 4 and wanted <= distances:
            break
    assert wanted <= distances


def test_in_every_setting(server, texts, runs):
    others = [Request(text, 60) for text in texts[:3]]
    outcome, steps = serve_and_abort(server, others, texts[5], runs, 0.15)

    assert outcome.wrong_tokens() == []
    assert any(in_step(["aborted"], step) for step in steps)


def serve_and_abort(server, others, victim, runs, after_s):
    """The outcome of the others, and all steps; the victim, named "aborted", is ended meanwhile."""
    server.schedule(runs)
    server.new_steps()
    by_rid = {f"other-{i}": request for i, request in enumerate(others)}
    aborted = server.submit(victim.prompt, rid="aborted", max_new_tokens=500)
    waiting = {
        rid: server.submit(request.prompt, rid=rid, max_new_tokens=request.tokens)
        for rid, request in by_rid.items()
    }
    time.sleep(after_s)
    server.abort("aborted")
    answers = {rid: future.result() for rid, future in waiting.items()}
    assert aborted.result().meta["finish_reason"]["type"] == "abort"
    steps = server.new_steps()
    server.wait_until_idle()
    return Outcome(by_rid, answers, steps), steps


def test_a_client_that_hangs_up(server, texts, runs):
    """The stream is closed while tokens come; SGLang then ends the request by itself."""
    server.schedule(runs)
    other = server.submit(texts[1].prompt, max_new_tokens=80)
    body = generate_body(texts[0].prompt, {"max_new_tokens": 500, "stream": True})
    with requests.post(server.url + "/generate", json=body, stream=True, timeout=60) as response:
        lines = (line for line in response.iter_lines() if line)
        for _ in range(3):
            assert next(lines).startswith(b"data: {")

    assert other.result().token_ids == texts[1].answer[:80]
    server.wait_until_idle()  # long before 500 tokens


def test_while_waiting_and_all_at_once(server, texts, runs):
    server.schedule(runs)
    waiting = [
        server.submit(text.prompt, rid=f"many-{i}", max_new_tokens=500)
        for i, text in enumerate(texts[:10])
    ]
    time.sleep(0.1)
    while not all(future.done() for future in waiting):  # One may not have arrived yet.
        server.post("/abort_request", {"abort_all": True})
        time.sleep(0.1)
    for future, text in zip(waiting, texts[:10], strict=True):
        answer = future.result()
        assert answer.meta["finish_reason"]["type"] == "abort"
        assert answer.token_ids == text.answer[: len(answer.token_ids)]

    server.wait_until_idle()
    assert server.generate([texts[0].prompt])[0].token_ids == texts[0].answer[:32]
