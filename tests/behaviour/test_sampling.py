"""Sampled output in both modes, beside a server without speculation."""

import json

import pytest
from worker_scenarios import tokens_of

SAMPLINGS = {
    "temperature": {"temperature": 0.8},
    "top_p": {"temperature": 1.0, "top_p": 0.8, "top_k": 20},
    "min_p": {"temperature": 1.0, "min_p": 0.1},
    "penalties": {"frequency_penalty": 2.0, "presence_penalty": -1.0, "repetition_penalty": 1.2},
    "logit_bias": {"logit_bias": {"101": -5.0, "32": 3.0}},
    "min_new_tokens": {"min_new_tokens": 30, "ignore_eos": False, "stop_token_ids": [32]},
}


def test_every_way_of_sampling_in_one_batch(server, texts, runs):
    server.schedule(runs)
    waiting = [
        server.submit(text.prompt, **({"max_new_tokens": 48} | sampling))
        for text, sampling in zip(texts, [*SAMPLINGS.values(), {}] * 2, strict=False)
    ]
    for n, future in enumerate(waiting):
        answer = future.result()
        assert 30 <= len(answer.token_ids) <= 48
        assert len(answer.token_ids) == answer.meta["completion_tokens"]
        if n % (len(SAMPLINGS) + 1) == len(SAMPLINGS):
            assert answer.token_ids == texts[n].answer[:48], "greedy, among others that sample"


@pytest.mark.parametrize("runs", ["1s", "1p", "1p 1s"])
def test_the_first_tokens_have_the_plain_servers_distribution(server, stock_server, texts, runs):
    """Two samples of n from one law over k tokens lie about sqrt(k / n) apart."""
    server.schedule(runs)
    top_k, samples = 4, 300
    law = {"max_new_tokens": 4, "temperature": 2.0, "top_k": top_k}
    prompts = [texts[0].prompt] * samples

    mine = tokens_of(server.generate(prompts, **law))
    theirs = tokens_of(stock_server.generate(prompts, **law))

    for place in (0, 1, 2):
        # Compared where the tokens before are the same, so that the law is one: where both have
        # most samples.
        heads = [[tuple(tokens[:place]) for tokens in side] for side in (mine, theirs)]
        before = max(set(heads[1]), key=lambda head: min(side.count(head) for side in heads))
        counts = [
            [tokens[place] for tokens in side if tuple(tokens[:place]) == before]
            for side in (mine, theirs)
        ]
        least = min(map(len, counts))
        assert least > 15
        distance = sum(
            abs(counts[0].count(token) / len(counts[0]) - counts[1].count(token) / len(counts[1]))
            for token in {*counts[0], *counts[1]}
        )
        assert distance / 2 < 2 * (top_k / least) ** 0.5


def test_min_p_counts_in_plain_steps_only(server, texts):
    """At 1 it leaves the likeliest token alone, whatever the temperature. SGLang's verify does not
    look at it."""
    asked = {"max_new_tokens": 40, "temperature": 1.5, "min_p": 1.0}
    prompts = [text.prompt for text in texts[:4]]
    greedy = [text.answer[:40] for text in texts[:4]]

    server.schedule("1p")
    assert tokens_of(server.generate(prompts, **asked)) == greedy
    server.wait_until_idle()
    server.schedule("1s")
    verified = tokens_of(server.generate(prompts, **asked))
    assert all(got != want for got, want in zip(verified, greedy, strict=True))
    assert [tokens[0] for tokens in verified] == [tokens[0] for tokens in greedy], "a prefill's"


PROCESSOR = "sglang.srt.sampling.custom_logit_processor", "DisallowedTokensLogitsProcessor"
FORBIDDEN = 101


def test_a_custom_logit_processor_counts_in_plain_steps_only(server, stock_server, texts):
    """SGLang's verify does not call it."""
    by_reference = "c{}\n{}\n.".format(*PROCESSOR).encode()
    asked = {
        "max_new_tokens": 40,
        "custom_logit_processor": json.dumps({"callable": by_reference.hex()}),
        "custom_params": {"token_ids": [FORBIDDEN]},
    }
    chosen = [text for text in texts if FORBIDDEN in text.answer[1:40] and text.answer[0] != 101]
    prompts = [text.prompt for text in chosen[:4]]
    expected = tokens_of(stock_server.generate(prompts, **asked))

    server.schedule("1p")
    assert tokens_of(server.generate(prompts, **asked)) == expected
    assert not any(FORBIDDEN in tokens for tokens in expected)
    server.wait_until_idle()
    server.schedule("1s")
    assert tokens_of(server.generate(prompts, **asked)) == [text.answer[:40] for text in chosen[:4]]
