"""The CPU engine with SGLang's own EAGLE worker: the ground that the worker's tests stand on."""

from collections import Counter

import pytest

STOCK = {"SGLANG_SPECV2": "0"}
PROMPTS = [[2, 3, 4, 5, 6], [9, 8, 7], [*range(3, 40)], [200] * 17, [11]]
"""Of several lengths, at and around a page of 16."""


@pytest.fixture(scope="module")
def plain(start_server, random_pair):
    """A server that never speculates."""
    return start_server(random_pair[0], env=STOCK)


@pytest.fixture(scope="module")
def speculating(start_server, random_pair):
    return start_server(*random_pair, env=STOCK)


@pytest.fixture(scope="module")
def expected(plain):
    """The greedy tokens, 48 for each prompt."""
    return tokens(plain.generate(PROMPTS, max_new_tokens=48))


def tokens(answers):
    return [answer.token_ids for answer in answers]


def test_greedy_tokens_do_not_depend_on_speculation(speculating, expected):
    answers = speculating.generate(PROMPTS, max_new_tokens=48)

    assert tokens(answers) == expected
    assert len(set(expected[0])) > 10, "weights that only repeat themselves would hide faults"
    speculating.wait_until_idle()


def test_the_overlap_loop_is_on(speculating):
    assert speculating.get("/server_info")["disable_overlap_schedule"] is False


def test_every_verification_gains_one_to_three_tokens(speculating):
    for answer in speculating.generate(PROMPTS, max_new_tokens=48):
        histogram = answer.meta["spec_correct_drafts_histogram"]
        verifications = answer.meta["spec_verify_ct"]
        accepted = sum(drafts * count for drafts, count in enumerate(histogram))
        assert len(histogram) <= 3
        assert sum(histogram) == verifications
        # The first token comes from the prefill, and the limit may cut the last run short.
        assert 47 <= verifications + accepted <= 49


def test_requests_that_come_and_go_change_nothing_for_others(speculating, expected):
    first = speculating.submit(PROMPTS[0], max_new_tokens=48)
    aborted = speculating.submit(PROMPTS[1], rid="gone", max_new_tokens=1000)
    others = [speculating.submit(prompt, max_new_tokens=48) for prompt in PROMPTS[2:]]
    # SGLang forgets an abort of a request that it does not know yet.
    assert first.result().token_ids == expected[0]
    speculating.abort("gone")

    assert [other.result().token_ids for other in others] == expected[2:]
    assert aborted.result().meta["finish_reason"]["type"] == "abort"
    speculating.wait_until_idle()


def test_a_shared_prefix_comes_from_the_radix_cache(speculating):
    prompt = [*range(100, 140)]
    cold = speculating.generate([prompt], max_new_tokens=8)
    warm = speculating.generate([prompt], max_new_tokens=8)

    assert warm[0].meta["cached_tokens"] > 30
    assert tokens(warm) == tokens(cold)


def test_sampling_takes_the_sampled_path_of_the_verification(speculating, plain):
    """With top-k 1 sampling is greedy, whatever the temperature; with more it is not."""
    greedy = tokens(plain.generate(PROMPTS, max_new_tokens=24))

    narrow = speculating.generate(PROMPTS, max_new_tokens=24, temperature=2.0, top_k=1)
    wide = speculating.generate(PROMPTS, max_new_tokens=24, temperature=2.0, top_p=0.95, top_k=40)

    assert tokens(narrow) == greedy
    assert all(got != want for got, want in zip(tokens(wide), greedy, strict=True))
    speculating.wait_until_idle()


def test_a_verified_token_has_the_plain_servers_distribution(speculating, plain, expected):
    """The second token comes from a verification; it is compared where the first is the same.

    Two samples of n from one law over the k tokens of top-k lie about sqrt(k / n) apart in total
    variation; twice that is far beyond chance, and far below a point mass against such a law.
    """
    top_k, first = 4, expected[0][0]
    law = {"max_new_tokens": 2, "temperature": 2.0, "top_k": top_k}

    def second_tokens(server):
        pairs = tokens(server.generate([PROMPTS[0]] * 500, **law))
        return Counter(second for token, second in pairs if token == first)

    counts, plain_counts = second_tokens(speculating), second_tokens(plain)

    total, plain_total = counts.total(), plain_counts.total()
    assert min(total, plain_total) > 100
    distance = sum(
        abs(counts[token] / total - plain_counts[token] / plain_total)
        for token in counts | plain_counts
    )
    assert distance / 2 < 2 * (top_k / min(total, plain_total)) ** 0.5
    assert len(counts) > 1


@pytest.mark.parametrize("page_size", [16, 64])
def test_pages_of_many_tokens_give_the_same_and_leave_nothing(
    start_server, random_pair, expected, page_size
):
    server = start_server(*random_pair, env=STOCK, arguments=["--page-size", str(page_size)])

    for _ in range(3):
        assert tokens(server.generate(PROMPTS, max_new_tokens=48)) == expected
        server.wait_until_idle()
    server.stop()


def test_two_ranks_give_the_same(start_server, random_pair, expected):
    server = start_server(*random_pair, env=STOCK, arguments=["--tp-size", "2"])

    assert tokens(server.generate(PROMPTS, max_new_tokens=48)) == expected
    sampled = server.generate(PROMPTS, max_new_tokens=24, temperature=1.0, top_k=20)
    assert [len(answer.token_ids) for answer in sampled] == [24] * len(PROMPTS)
    server.wait_until_idle()
    server.stop()
