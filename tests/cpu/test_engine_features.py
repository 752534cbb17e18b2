"""What of SGLang besides plain decoding works on the CPU engine, on the bundled pair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import child_environment

STOCK = {"SGLANG_SPECV2": "0"}
TEXT = "    def test_add(self):\n        self.assertEqual("


@pytest.fixture(scope="module")
def server(start_server, trained_pair):
    """Heeds the sampling seed of a request, which SGLang does with this flag only."""
    return start_server(*trained_pair, env=STOCK, arguments=["--enable-deterministic-inference"])


def test_drafts_of_the_bundled_pair_are_accepted(server):
    (answer,) = server.generate([TEXT], max_new_tokens=96)
    assert 2.0 < answer.accept_length <= 3.0
    assert "self.assert" in answer.text


def test_a_schema_is_kept_through_verifications(server):
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"enum": [7, 1234]}},
        "required": ["name", "n"],
        "additionalProperties": False,
    }
    (answer,) = server.generate(
        [TEXT], max_new_tokens=100, ignore_eos=False, json_schema=json.dumps(schema)
    )
    value = json.loads(answer.text)
    assert set(value) == {"name", "n"}
    assert value["n"] in (7, 1234)
    assert answer.meta["finish_reason"]["type"] == "stop"


def test_seeds_choose_the_sample(server):
    def sample(seed, neighbours):
        answers = server.generate(
            [TEXT] * (1 + neighbours), max_new_tokens=40, temperature=1.0, sampling_seed=seed
        )
        return answers[0].text

    assert sample(3, neighbours=0) == sample(3, neighbours=2)
    assert sample(3, neighbours=0) != sample(4, neighbours=0)


def test_every_token_has_its_logprob(server):
    (answer,) = server.generate([TEXT], max_new_tokens=20, return_logprob=True, top_logprobs_num=2)

    chosen = [(token, logprob) for logprob, token, _ in answer.meta["output_token_logprobs"]]
    best = [(top[0][1], top[0][0]) for top in answer.meta["output_top_logprobs"]]
    assert [token for token, _ in chosen] == answer.token_ids
    for (token, logprob), (best_token, best_logprob) in zip(chosen, best, strict=True):
        assert token == best_token
        assert logprob == pytest.approx(best_logprob, abs=1e-5)


def test_the_engine_gives_what_the_server_gives(server, trained_pair, tmp_path):
    target, draft = trained_pair
    (expected,) = server.generate([TEXT], max_new_tokens=32)
    request, answer = tmp_path / "request.json", tmp_path / "answer.json"
    engine = {
        "model_path": str(target),
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 3,
    }
    sampling = {"temperature": 0.0, "max_new_tokens": 32, "ignore_eos": True}
    request.write_text(
        json.dumps({"engine": engine, "generate": {"prompt": [TEXT], "sampling_params": sampling}})
    )

    child = Path(__file__).with_name("engine_child.py")
    run = subprocess.run(
        [sys.executable, str(child), str(request), str(answer)],
        env=child_environment("cpu", STOCK),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    assert json.loads(answer.read_text())[0]["output_ids"] == expected.token_ids
