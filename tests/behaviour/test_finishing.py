"""An output ends where it ends without speculation: at limits, stop tokens, stop strings and EOS.

With speculation several tokens come at once, and the end may lie in the middle of them.
"""

import pytest
from worker_scenarios import Request, cut_runs, serve, stop_at

END_OF_TEXT = 256
ENDING = b'    return x\n\n\nif __name__ == "__main__":\n    unittest.main()\n'
"""Behind the last of these the bundled target ends the text, and its draft expects that."""


@pytest.fixture(scope="module")
def stops(stock_server, texts):
    """(text, sampling, what a server without speculation answers), for every way to stop."""
    cases = [(text, {"max_new_tokens": 20 + i}) for i, text in enumerate(texts)]
    for text in texts[:7]:
        answer = text.answer[:110]
        late = [token for n, token in enumerate(answer) if n > 15 and token not in answer[:n]]
        cases += [(text, stop_at(token)) for token in late[:3]]
        for start in (30, 47):
            word = bytes(text.answer[start : start + 4]).decode()
            cases.append((text, {"max_new_tokens": 120, "stop": [word]}))
    waiting = [stock_server.submit(text.prompt, **sampling) for text, sampling in cases]
    answers = [future.result() for future in waiting]
    reasons = {type(answer.meta["finish_reason"].get("matched")) for answer in answers}
    assert reasons == {type(None), int, str}, "limits, stop tokens and stop strings"
    return [(*case, answer) for case, answer in zip(cases, answers, strict=True)]


def test_nothing_follows_a_stop(server, stops, runs):
    server.schedule(runs)
    waiting = [server.submit(text.prompt, **sampling) for text, sampling, _ in stops]

    for future, (text, sampling, expected) in zip(waiting, stops, strict=True):
        got = future.result()
        assert got.token_ids == expected.token_ids, sampling
        # How much of a stop string SGLang cuts off depends on how many tokens came at once.
        assert bytes(got.token_ids).decode().startswith(got.text)
        assert sampling.get("stop", ["never"])[0] not in got.text
        assert got.meta["finish_reason"] == expected.meta["finish_reason"]
        assert got.meta["completion_tokens"] == len(got.token_ids)
        assert got.token_ids == text.answer[: len(got.token_ids)]


def test_limits_and_stop_tokens_fall_inside_accepted_runs(server, texts):
    """What comes before would prove little if none of them did."""
    limited = serve(server, [Request(texts[i], 20 + i) for i in range(8)], "1s")
    limited.require_right()
    assert cut_runs(limited)

    inside = 0
    for text in texts[:6]:
        for row in drafted_runs(serve(server, [Request(text, 60)], "1s")):
            place = row.position + 1 - len(text.prompt)  # of the run's first token, a draft
            token = text.answer[place]
            if token not in text.answer[:place]:
                (answer,) = server.generate([text.prompt], **stop_at(token))
                assert answer.token_ids == text.answer[: place + 1]
                assert answer.meta["finish_reason"] == {"type": "stop", "matched": token}
                inside += 1
    assert inside > 3


def drafted_runs(outcome):
    return [row for step in outcome.steps for row in step.rows if row.accepted > 1]


def test_eos_that_was_a_draft_ends_the_text(server, stock_server, runs):
    """From prompts of every length, so that it comes at every place of a run."""
    server.schedule(runs)
    server.new_steps()
    prompts = [list(ENDING[:-n]) for n in range(1, 14)]
    heeding = {"max_new_tokens": 60, "ignore_eos": False}
    waiting = [server.submit(p, rid=f"ending-{n}", **heeding) for n, p in enumerate(prompts)]
    answers = [future.result() for future in waiting]

    expected = stock_server.generate(prompts, **heeding)
    assert [a.token_ids for a in answers] == [a.token_ids for a in expected]
    assert [a.meta["finish_reason"] for a in answers] == [
        {"type": "stop", "matched": END_OF_TEXT} for _ in prompts
    ]
    for prompt, answer in zip(prompts, answers, strict=True):
        assert bytes([*prompt, *answer.token_ids[:-1]]) == ENDING
    places = {f"ending-{n}": len(ENDING) for n in range(len(prompts))}
    drafted = [
        row
        for step in server.new_steps()
        for row in step.rows
        if row.position < places.get(row.rid, -1) < row.position + row.accepted
    ]
    assert drafted or runs == "1p"


@pytest.mark.parametrize("tokens", [1, 2, 3])
def test_the_shortest_outputs(server, texts, runs, tokens):
    """The first token comes from the prefill; no decode step may add to it."""
    outcome = serve(server, [Request(text, tokens) for text in texts], runs)

    assert outcome.wrong_tokens() == []
    assert {a.meta["finish_reason"]["type"] for a in outcome.answers.values()} == {"length"}
