"""Penalties, biases and minimum lengths: where both modes agree, and where SGLang's verify differs.

A verify takes its penalties from the counts before the step, for all of its rows; a plain step does
what a server without speculation does.
"""

import pytest
from worker_scenarios import tokens_of

BIAS = {"logit_bias": {"101": -5.0, "32": 3.0}}
COUNTED = {
    "frequency_penalty": {"frequency_penalty": 2.0},
    "negative frequency_penalty": {"frequency_penalty": -2.0},
    "presence_penalty": {"presence_penalty": 1.5},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "min_new_tokens": {"min_new_tokens": 30, "ignore_eos": False, "stop_token_ids": [32]},
}


@pytest.mark.parametrize("sampling", [*COUNTED.values(), BIAS], ids=[*COUNTED, "logit_bias"])
def test_a_plain_step_samples_as_a_server_without_speculation(
    server, stock_server, texts, sampling
):
    """One request at a time: how late SGLang counts a token as seen depends on its neighbours."""
    server.schedule("1p")
    asked = {"max_new_tokens": 40} | sampling
    prompts = [text.prompt for text in texts[:3]]

    answers = [server.generate([prompt], **asked)[0].token_ids for prompt in prompts]

    assert answers == [stock_server.generate([prompt], **asked)[0].token_ids for prompt in prompts]
    assert answers != [text.answer[:40] for text in texts[:3]]


def test_a_constant_bias_is_the_same_in_both_modes(server, stock_server, texts, runs):
    asked = {"max_new_tokens": 60} | BIAS
    prompts = [text.prompt for text in texts[:5]]
    server.schedule(runs)

    expected = tokens_of(stock_server.generate(prompts, **asked))

    assert tokens_of(server.generate(prompts, **asked)) == expected


def test_a_minimum_length_is_kept_in_every_setting(server, texts, runs):
    server.schedule(runs)
    asked = {"max_new_tokens": 48} | COUNTED["min_new_tokens"]
    for answer in server.generate([text.prompt for text in texts[:6]], **asked):
        assert 30 <= len(answer.token_ids) <= 48
        assert 32 not in answer.token_ids[:30]


def test_a_verify_counts_once_a_step(server, stock_server, texts):
    """The documented difference: within the rows of a verify a repeated token costs nothing more.

    A token is forbidden by its penalty once it was seen before the step, and only then.
    """
    asked = {"max_new_tokens": 40, "presence_penalty": 2.0, "frequency_penalty": 2.0}
    prompts = [text.prompt for text in texts[:6]]
    expected = [stock_server.generate([prompt], **asked)[0].token_ids for prompt in prompts]
    server.schedule("1s")
    verified = [server.generate([prompt], **asked)[0].token_ids for prompt in prompts]

    assert [tokens[0] for tokens in verified] == [tokens[0] for tokens in expected], "a prefill's"
    assert verified != expected, "SGLang's verify counts exactly now: change docs/limits.md"
