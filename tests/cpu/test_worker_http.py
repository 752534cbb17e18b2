"""What clients see of a switching server: HTTP, streams, the Engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import requests
from live_server import child_environment
from probed_server import PROBE

CHAT = {
    "model": "default",
    "messages": [{"role": "user", "content": "What does a queue do?"}],
    "temperature": 0,
    "max_tokens": 60,
}
RUNS = ["1p", "1s", "1s 1p", "3s 5p"]


@pytest.fixture(scope="module")
def chat(switching_server):
    """The answer to :data:`CHAT` while off."""
    switching_server.schedule("1p")
    answer = switching_server.post("/v1/chat/completions", CHAT)
    switching_server.wait_until_idle()
    return answer["choices"][0]["message"]["content"]


def events(server, path, body):
    """The data of a stream of server-sent events."""
    with requests.post(server.url + path, json=body, stream=True, timeout=60) as response:
        lines = [line.decode() for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("runs", RUNS)
def test_chat(server, chat, runs):
    server.schedule(runs)
    answer = server.post("/v1/chat/completions", CHAT)

    assert len(chat) > 20
    assert answer["choices"][0]["message"]["content"] == chat
    assert answer["usage"]["completion_tokens"] <= 60


@pytest.mark.parametrize("runs", RUNS)
def test_a_streamed_chat(server, chat, runs):
    server.schedule(runs)
    chunks = events(server, "/v1/chat/completions", CHAT | {"stream": True})
    pieces = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]]

    assert "".join(pieces) == chat
    assert sum(map(bool, pieces)) > 5, "in pieces, not at once"


@pytest.mark.parametrize("runs", RUNS)
def test_a_stop_string_ends_a_chat(server, chat, runs):
    server.schedule(runs)
    word = chat[25:29]
    answer = server.post("/v1/chat/completions", CHAT | {"stop": [word]})["choices"][0]

    assert answer["finish_reason"] == "stop"
    assert chat.startswith(answer["message"]["content"])
    assert word not in answer["message"]["content"]


@pytest.mark.parametrize("runs", RUNS)
def test_a_stream_of_tokens_only_grows(server, texts, runs):
    server.schedule(runs)
    sampling = {"temperature": 0, "max_new_tokens": 50, "ignore_eos": True}
    body = {"input_ids": texts[0].prompt, "sampling_params": sampling, "stream": True}
    seen = [event["output_ids"] for event in events(server, "/generate", body)]

    assert seen[-1] == texts[0].answer[:50]
    assert all(ids == seen[-1][: len(ids)] for ids in seen)


def test_the_engine_takes_our_keywords(trained_pair, texts, tmp_path):
    """Three requests are above a threshold of two; one is not."""
    target, draft = trained_pair
    request, answer, trace = (tmp_path / name for name in ("request", "answer", "steps"))
    engine = {
        "model_path": str(target),
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(draft),
        "speculative_num_steps": 2,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 3,
        "speculative_disable_batch_threshold": 2,
        "speculative_switch_min_dwell": 1,
        "speculative_draft_sync": "extend",
    }
    sampling = [
        {"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True}
        for tokens in (30, 30, 80)
    ]
    prompts = [text.prompt for text in texts[:3]]
    generate = {"input_ids": prompts, "sampling_params": sampling}
    request.write_text(json.dumps({"engine": engine, "generate": generate}))

    search = os.pathsep.join([str(PROBE), os.environ.get("PYTHONPATH", "")])
    run = subprocess.run(
        [
            sys.executable,
            str(Path(__file__).with_name("engine_child.py")),
            str(request),
            str(answer),
        ],
        env=child_environment("cpu", {"PYTHONPATH": search, "SPECV2_PROBE_TRACE": str(trace)}),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    got = [one["output_ids"] for one in json.loads(answer.read_text())]
    assert got == [text.answer[:tokens] for text, tokens in zip(texts, (30, 30, 80), strict=False)]
    steps = [json.loads(line) for line in Path(f"{trace}.0").read_text().splitlines()]
    for step in steps:
        plain = step["family"].startswith("plain")
        assert plain == (len(step["rids"]) > 2) or len(step["rids"]) == 2
    assert {step["stride"] for step in steps} == {1, 3}
    assert not any(any(step["pending"]) for step in steps), (
        "the draft extend leaves nothing pending"
    )
