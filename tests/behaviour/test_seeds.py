"""A sampling seed, which SGLang heeds with --enable-deterministic-inference only."""

import pytest
from worker_scenarios import tokens_of

SAMPLED = {"max_new_tokens": 30, "temperature": 1.0}


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed("--speculative-dynamic", "never", "--enable-deterministic-inference")


def test_a_seed_fixes_the_sample_where_the_same_steps_are_plain(server, texts, runs):
    def sample(seed, neighbours):
        server.schedule(runs)
        prompts = [text.prompt for text in texts[: 1 + neighbours]]
        answers = server.generate(prompts, sampling_seed=seed, **SAMPLED)
        server.wait_until_idle()
        return answers[0].token_ids

    alone = sample(3, neighbours=0)
    assert sample(3, neighbours=2) == alone
    assert sample(4, neighbours=0) != alone


def test_the_modes_choose_another_sample_by_the_same_seed(server, texts):
    """The documented difference: a verify draws its own random numbers from the seed."""
    drawn = []
    for runs in ("1s", "1p"):
        server.schedule(runs)
        prompts = [text.prompt for text in texts[:4]]
        drawn.append(tokens_of(server.generate(prompts, sampling_seed=5, **SAMPLED)))
        server.wait_until_idle()

    assert drawn[0] != drawn[1]
    assert [tokens[0] for tokens in drawn[0]] == [tokens[0] for tokens in drawn[1]], "a prefill's"
