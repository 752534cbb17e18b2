"""Constrained output keeps its grammar, whatever mode each of its steps runs in."""

import json
import re

import pytest
from worker_scenarios import THRESHOLD

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"enum": [7, 1234]}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
CONSTRAINED = {"max_new_tokens": 100, "ignore_eos": False, "json_schema": json.dumps(SCHEMA)}


def require_schema(answer):
    value = json.loads(answer.text)
    assert set(value) == {"name", "n"}
    assert len(value["name"]) <= 8
    assert value["n"] in (7, 1234)
    assert answer.meta["finish_reason"]["type"] == "stop"


def test_a_schema_beside_free_requests(server, stock_server, texts, runs):
    server.schedule(runs)
    waiting = [
        server.submit(text.prompt, max_new_tokens=40)
        if i % 2
        else server.submit(text.prompt, **CONSTRAINED)
        for i, text in enumerate(texts[:8])
    ]
    expected = stock_server.generate([text.prompt for text in texts[:8:2]], **CONSTRAINED)
    for i, future in enumerate(waiting):
        answer = future.result()
        if i % 2:
            assert answer.token_ids == texts[i].answer[:40]
        else:
            require_schema(answer)
            assert answer.token_ids == expected[i // 2].token_ids


@pytest.mark.parametrize("beside", [-1, 0, 1])
def test_a_schema_around_the_threshold(server, texts, beside):
    """As many requests as the threshold, one less and one more; the policy decides."""
    server.new_steps()
    clients = THRESHOLD["disable_above"] + beside
    for _ in range(2):
        waiting = [server.submit(text.prompt, **CONSTRAINED) for text in texts[:clients]]
        for future in waiting:
            require_schema(future.result())
    modes = {step.speculative for step in server.new_steps()}
    assert True in modes
    assert (False in modes) == (beside > 0)


def test_a_grammar_that_ends_inside_an_accepted_run(server, stock_server, texts, runs):
    """The grammar allows the text's own beginnings of 8 to 22 tokens, and then nothing."""
    server.schedule(runs)
    asked = [
        (text, {"max_new_tokens": 60, "ignore_eos": False, "regex": beginning(text, 8 + 2 * i)})
        for i, text in enumerate(texts[:8])
    ]
    waiting = [server.submit(text.prompt, **sampling) for text, sampling in asked]
    for future, (text, sampling) in zip(waiting, asked, strict=True):
        got = future.result()
        expected = stock_server.submit(text.prompt, **sampling).result()
        assert got.token_ids == expected.token_ids
        assert got.text == expected.text
        assert got.meta["finish_reason"] == expected.meta["finish_reason"]
        assert re.fullmatch(sampling["regex"], got.text)


def beginning(text, tokens):
    return re.escape(bytes(text.answer[:tokens]).decode())
