"""Switching changes nothing that a client sees, and every draft is as if it had never been off."""

import itertools
import json
import random
import time

import pytest
from worker_scenarios import (
    Outcome,
    Request,
    follows_the_threshold,
    in_step,
    of_many_lengths,
    random_runs,
    serve,
)


@pytest.fixture(scope="module")
def server(switching_server):
    return switching_server


@pytest.fixture(scope="module")
def plain(start_server, trained_pair):
    """SGLang without speculation and without this package."""
    return start_server(
        trained_pair[0],
        env={"SGLANG_SPECV2": "0"},
        arguments=["--constrained-json-disable-any-whitespace"],
    )


@pytest.fixture(autouse=True)
def _nothing_is_left(server):
    yield
    server.wait_until_idle()
    server.schedule("")


@pytest.mark.parametrize("runs", ["1s 1p", "2s 2p", "7s 7p", random_runs(1), random_runs(2, 3)])
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


def test_the_greedy_text_is_that_of_a_server_without_speculation(plain, texts):
    answers = plain.generate([text.prompt for text in texts], max_new_tokens=200)

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


@pytest.mark.parametrize("runs", ["1s 1p", "3s 3p"])
def test_an_abort_at_any_distance_from_a_switch_leaves_the_others_alone(server, texts, runs):
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
    state = server.get("/server_info")["internal_states"][0]["speculative_dynamic_state"]
    assert sum(state["switches"].values()) >= 100


def serve_and_abort(server, others, victim, runs, after_s):
    """The outcome of the others, and all steps; the victim, named "aborted", is ended meanwhile."""
    server.schedule(runs)
    server.new_steps()
    by_rid = {f"other-{i}": request for i, request in enumerate(others)}
    aborted = server.submit(victim.prompt, rid="aborted", max_new_tokens=4000)
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


@pytest.fixture(scope="module")
def stops(plain, texts):
    """(text, sampling, what a server without speculation answers), for every way to stop."""
    cases = [(text, {"max_new_tokens": 20 + i}) for i, text in enumerate(texts)]
    for text in texts[:7]:
        answer = text.answer[:110]
        late = [token for n, token in enumerate(answer) if n > 15 and token not in answer[:n]]
        cases += [(text, {"max_new_tokens": 120, "stop_token_ids": [token]}) for token in late[:3]]
        for start in (30, 47):
            word = bytes(text.answer[start : start + 4]).decode()
            cases.append((text, {"max_new_tokens": 120, "stop": [word]}))
    waiting = [plain.submit(text.prompt, **sampling) for text, sampling in cases]
    return [(*case, future.result()) for case, future in zip(cases, waiting, strict=True)]


@pytest.mark.parametrize("runs", ["1s", "2s 1p", "1p"])
def test_nothing_follows_a_stop(server, stops, runs):
    """Limits, stop tokens and stop strings cut where they cut without speculation."""
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


def test_a_limit_cuts_an_accepted_run(server, texts):
    """The stops above would prove little if none of them fell inside a run."""
    requests = [Request(texts[i], 20 + i) for i in range(8)]
    outcome = serve(server, requests, "1s")

    outcome.require_right()
    ends = {rid: len(r.prompt) + r.tokens for rid, r in outcome.requests.items()}
    cut = [
        row
        for step in outcome.steps
        for row in step.rows
        if row.position + 1 < ends[row.rid] < row.position + 1 + row.accepted
    ]
    assert cut


def test_a_second_turn_finds_the_first_in_the_radix_cache(server, texts):
    """Turns decoded while off, on and in between; the draft reads what they left."""
    server.wait_until_idle()  # flushes the cache
    for turn, runs in enumerate(["1p", "1s", "3s 5p", "5p 3s"]):
        requests = [Request(text, 30, given=30 * turn) for text in texts[:6]]
        outcome = serve(server, requests, runs)
        outcome.require_right()
        if turn:
            for rid, request in outcome.requests.items():
                assert outcome.answers[rid].meta["cached_tokens"] >= len(request.prompt) - 3


@pytest.mark.parametrize("runs", ["1s 1p", "3s 4p", "1s", "1p"])
def test_one_logprob_for_each_token(server, plain, texts, runs):
    server.schedule(runs)
    asked = {"max_new_tokens": 40, "return_logprob": True, "top_logprobs_num": 2}
    prompts = [text.prompt for text in texts[:6]]
    for got, expected in zip(
        server.generate(prompts, **asked), plain.generate(prompts, **asked), strict=True
    ):
        mine, theirs = got.meta["output_token_logprobs"], expected.meta["output_token_logprobs"]
        assert [token for _, token, _ in mine] == got.token_ids == expected.token_ids
        assert [p for p, _, _ in mine] == pytest.approx([p for p, _, _ in theirs], abs=1e-3)
        top, their_top = got.meta["output_top_logprobs"], expected.meta["output_top_logprobs"]
        assert len(top) == 40
        for pair, their_pair in zip(top, their_top, strict=True):
            assert [p for p, _, _ in pair] == pytest.approx([p for p, _, _ in their_pair], abs=1e-3)


SAMPLINGS = {
    "temperature": {"temperature": 0.8},
    "top_p": {"temperature": 1.0, "top_p": 0.8, "top_k": 20},
    "min_p": {"temperature": 1.0, "min_p": 0.1},
    "penalties": {"frequency_penalty": 2.0, "presence_penalty": -1.0, "repetition_penalty": 1.2},
    "logit_bias": {"logit_bias": {"101": -5.0, "32": 3.0}},
    "min_new_tokens": {"min_new_tokens": 30, "ignore_eos": False, "stop_token_ids": [32]},
}


@pytest.mark.parametrize("runs", ["1s 1p", "4s 3p"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_every_way_of_sampling_runs_through_switches(server, texts, sampling, runs):
    server.schedule(runs)
    answers = server.generate(
        [text.prompt for text in texts[:5]], **({"max_new_tokens": 48} | sampling)
    )
    for answer in answers:
        assert 30 <= len(answer.token_ids) <= 48
        assert len(answer.token_ids) == answer.meta["completion_tokens"]


@pytest.mark.parametrize("sampling", ["penalties", "logit_bias", "min_new_tokens"])
def test_a_plain_step_samples_as_a_server_without_speculation(server, plain, texts, sampling):
    """One request at a time: how late SGLang counts a token as seen depends on its neighbours."""
    server.schedule("1p")
    asked = {"max_new_tokens": 48} | SAMPLINGS[sampling]
    prompts = [text.prompt for text in texts[:4]]

    answers = [server.generate([prompt], **asked)[0].token_ids for prompt in prompts]

    assert answers == [plain.generate([prompt], **asked)[0].token_ids for prompt in prompts]
    assert answers != [text.answer[:48] for text in texts[:4]]


def test_a_constant_bias_is_the_same_in_both_modes(server, plain, texts):
    asked = {"max_new_tokens": 60} | SAMPLINGS["logit_bias"]
    prompts = [text.prompt for text in texts[:5]]
    expected = [answer.token_ids for answer in plain.generate(prompts, **asked)]
    for runs in ("1s", "2s 3p"):
        server.schedule(runs)
        assert [answer.token_ids for answer in server.generate(prompts, **asked)] == expected
        server.wait_until_idle()


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"enum": [7, 1234]}},
    "required": ["name", "n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("runs", ["1s", "1p", "1s 1p", "3s 2p"])
def test_a_schema_is_kept_through_switches(server, texts, runs):
    server.schedule(runs)
    waiting = [
        server.submit(text.prompt, max_new_tokens=40)
        if i % 2
        else server.submit(
            text.prompt, max_new_tokens=100, ignore_eos=False, json_schema=json.dumps(SCHEMA)
        )
        for i, text in enumerate(texts[:8])
    ]
    for i, future in enumerate(waiting):
        answer = future.result()
        if i % 2:
            assert answer.token_ids == texts[i].answer[:40]
        else:
            value = json.loads(answer.text)
            assert set(value) == {"name", "n"}
            assert answer.meta["finish_reason"]["type"] == "stop"


def test_the_first_sampled_tokens_have_the_plain_servers_distribution(server, plain, texts):
    """Two samples of n from one law over k tokens lie about sqrt(k / n) apart."""
    server.schedule("1p 1s")
    top_k, samples = 4, 300
    law = {"max_new_tokens": 4, "temperature": 2.0, "top_k": top_k}
    prompts = [texts[0].prompt] * samples

    mine = [a.token_ids for a in server.generate(prompts, **law)]
    theirs = [a.token_ids for a in plain.generate(prompts, **law)]

    for place in (1, 2):
        # Compared where the tokens before are the likeliest ones, so that the law is one.
        before = max(
            {tuple(tokens[:place]) for tokens in theirs},
            key=lambda head: sum(tuple(tokens[:place]) == head for tokens in theirs),
        )
        counts = [
            [tokens[place] for tokens in side if tuple(tokens[:place]) == before]
            for side in (mine, theirs)
        ]
        least = min(map(len, counts))
        assert least > 20
        distance = sum(
            abs(counts[0].count(token) / len(counts[0]) - counts[1].count(token) / len(counts[1]))
            for token in {*counts[0], *counts[1]}
        )
        assert distance / 2 < 2 * (top_k / least) ** 0.5


def test_switches_are_logged(server):
    assert "Decode is plain now" in server.log.read_text()
