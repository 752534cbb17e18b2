"""Caches flushed, weights updated, memory released while off: it works, and the draft is fresh."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from worker_scenarios import (
    FROM_THE_REFERENCE,
    Request,
    of_many_lengths,
    serve,
    serve_watched,
    tokens_of,
)


@pytest.fixture(scope="module")
def other_target(tmp_path_factory, trained_pair):
    """The bundled target with its head turned around a little: other greedy texts."""
    folder = shutil.copytree(trained_pair[0], tmp_path_factory.mktemp("weights") / "other-target")
    weights = load_file(folder / "model.safetensors")
    generator = torch.Generator().manual_seed(0)
    for name, tensor in weights.items():
        if name.endswith("o_proj.weight"):
            noise = torch.randn(tensor.shape, generator=generator)
            weights[name] = tensor + noise.to(tensor.dtype) * tensor.std() / 2
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    return folder


def update(server, folder):
    """Of an idle server: SGLang's scheduler ends when it cannot flush its cache with it."""
    server.wait_until_idle()
    return server.post("/update_weights_from_disk", {"model_path": str(folder)})


def test_weights_are_updated_while_off(
    server, stock_server, texts, trained_pair, other_target, runs
):
    """The draft is another checkpoint, which SGLang's own EAGLE worker ends with; ours keeps it."""
    prompts = [text.prompt for text in texts[:5]]
    serve(server, [Request(text, 10) for text in texts[:5]], "1p")
    try:
        assert update(stock_server, other_target)["success"]
        expected = tokens_of(stock_server.generate(prompts, max_new_tokens=60))
        answer = update(server, other_target)
        server.schedule(runs)
        got = tokens_of(server.generate(prompts, max_new_tokens=60))
    finally:
        for one in (server, stock_server):
            assert update(one, trained_pair[0])["success"]

    assert answer["success"]
    assert f"the draft keeps those of {trained_pair[1]}" in answer["message"]
    assert got == expected
    assert got != [text.answer[:60] for text in texts[:5]]
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts[:5], 20, 50), "2s 3p")
    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE


def test_a_checkpoint_that_does_not_fit_leaves_the_weights(server, texts, tmp_path):
    answer = server.ask("POST", "/update_weights_from_disk", {"model_path": str(tmp_path)})

    assert answer.status_code == 400
    assert "Failed" in answer.json()["message"]
    serve(server, [Request(texts[0], 40)], "2s 2p").require_right()


@pytest.mark.parametrize("tags", [None, ["kv_cache"], ["weights", "cuda_graph"]])
def test_memory_is_released_and_resumed_while_off(server, texts, tags):
    """Without --enable-memory-saver SGLang gives nothing back, but it flushes."""
    serve(server, [Request(text, 20) for text in texts[:4]], "1p")
    server.wait_until_idle()
    body = {} if tags is None else {"tags": tags}
    server.post("/release_memory_occupation", body)
    server.post("/resume_memory_occupation", body)

    outcome, draft_kv = serve_watched(server, of_many_lengths(texts[:5], 20, 60), "4s 5p")
    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE


def test_the_cache_is_flushed_while_off(server, texts):
    """What is pending when the last request ends is written after the flush, into a slot that is
    free by then; nobody reads it."""
    for _ in range(3):
        serve(server, [Request(text, 25) for text in texts[:5]], "1p").require_right()
        server.wait_until_idle()
        outcome, draft_kv = serve_watched(server, [Request(t, 40) for t in texts[5:9]], "1s 2p")
        outcome.require_right()
        assert draft_kv.worst <= FROM_THE_REFERENCE
        for answer in outcome.answers.values():
            assert answer.meta["cached_tokens"] < 12, "a word that prompts begin with"
        server.wait_until_idle()
