"""Two tensor-parallel ranks on two GPUs: NCCL, graphs of both families, a draft in two parts."""

import pytest
import torch
from worker_scenarios import (
    THRESHOLD_FLAGS,
    Request,
    in_step,
    of_many_lengths,
    random_case,
    serve_watched,
)

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2,
    reason="needs two NVIDIA GPUs: tensor parallelism",
)

FROM_THE_REFERENCE = 1e-4


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed("--tp-size", "2", *THRESHOLD_FLAGS)


@pytest.mark.parametrize("runs", ["", "1s 1p", "2s 17p", random_case(7)])
def test_ranks_decide_alike(server, texts, runs):
    server.new_steps(rank=1)
    requests = of_many_lengths(texts[:7], 40, 200)
    outcome, draft_kv = serve_watched(server, requests, runs, apart_s=0.02 if runs else 0)
    other_rank = [step for step in server.new_steps(rank=1) if in_step(outcome.requests, step)]
    server.wait_until_idle()

    outcome.require_right()
    assert outcome.steps == other_rank
    assert {step.speculative for step in outcome.steps} == {True, False}
    assert draft_kv.snapshots > 30
    assert draft_kv.worst <= FROM_THE_REFERENCE


def test_a_long_off_period(server, texts):
    outcome, _ = serve_watched(server, [Request(texts[4], 400)], "2s 260p 100s")

    outcome.require_right()
    assert len([accept for accept in outcome.accepts() if accept[1] > 260]) > 20
    server.wait_until_idle()
