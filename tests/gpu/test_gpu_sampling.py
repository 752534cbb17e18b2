"""Sampling through switches on a GPU, beside a server without speculation."""

import json

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: SGLang's sampling kernels"
)

RUNS = ["1p", "1s", "1s 1p", "4s 3p"]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"enum": [7, 1234]}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
NO_WHITESPACE = "--constrained-json-disable-any-whitespace"


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed("--speculative-dynamic", "never", NO_WHITESPACE)


@pytest.fixture(scope="module")
def plain(start_probed):
    return start_probed(NO_WHITESPACE, speculate=False, SGLANG_SPECV2="0")


@pytest.fixture(autouse=True)
def _nothing_is_left(server):
    yield
    server.wait_until_idle()


@pytest.mark.parametrize("runs", RUNS)
def test_one_logprob_for_each_token(server, plain, texts, runs):
    server.schedule(runs)
    asked = {"max_new_tokens": 40, "return_logprob": True, "top_logprobs_num": 2}
    prompts = [text.prompt for text in texts[:10]]
    for got, expected in zip(
        server.generate(prompts, **asked), plain.generate(prompts, **asked), strict=True
    ):
        mine, theirs = got.meta["output_token_logprobs"], expected.meta["output_token_logprobs"]
        assert [token for _, token, _ in mine] == got.token_ids == expected.token_ids
        assert [p for p, _, _ in mine] == pytest.approx([p for p, _, _ in theirs], abs=1e-3)
        assert len(got.meta["output_top_logprobs"]) == 40


@pytest.mark.parametrize("runs", RUNS)
def test_limits_and_stops_cut_where_they_cut_without_speculation(server, plain, texts, runs):
    server.schedule(runs)
    for text in texts[:4]:
        stop = next(t for n, t in enumerate(text.answer) if n > 20 and t not in text.answer[:n])
        at_token = {"max_new_tokens": 99, "stop_token_ids": [stop], "ignore_eos": False}
        for sampling in ({"max_new_tokens": 23}, at_token):
            (got,) = server.generate([text.prompt], **sampling)
            (expected,) = plain.generate([text.prompt], **sampling)
            assert got.token_ids == expected.token_ids
            assert got.meta["finish_reason"] == expected.meta["finish_reason"]


@pytest.mark.parametrize("runs", RUNS)
def test_a_schema_is_kept(server, texts, runs):
    server.schedule(runs)
    asked = {"max_new_tokens": 100, "ignore_eos": False, "json_schema": json.dumps(SCHEMA)}
    for answer in server.generate([text.prompt for text in texts[:6]], **asked):
        assert set(json.loads(answer.text)) == {"name", "n"}


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 1.0, "top_k": 20, "min_p": 0.05},
        {"frequency_penalty": 2.0, "repetition_penalty": 1.2},
        {"logit_bias": {"101": -5.0}, "min_new_tokens": 48},
    ],
    ids=["top-p", "top-k and min-p", "penalties", "bias"],
)
def test_every_way_of_sampling_runs_through_switches(server, texts, sampling):
    server.schedule("2s 2p")
    answers = server.generate(
        [text.prompt for text in texts], **({"max_new_tokens": 48} | sampling)
    )

    assert [len(answer.token_ids) for answer in answers] == [48] * len(texts)


def test_a_constant_bias_is_the_same_in_both_modes(server, plain, texts):
    asked = {"max_new_tokens": 60, "logit_bias": {"101": -5.0, "32": 3.0}}
    prompts = [text.prompt for text in texts[:5]]
    expected = [answer.token_ids for answer in plain.generate(prompts, **asked)]
    for runs in RUNS:
        server.schedule(runs)
        assert [answer.token_ids for answer in server.generate(prompts, **asked)] == expected
        server.wait_until_idle()
