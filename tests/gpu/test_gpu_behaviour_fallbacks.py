"""Steps without graphs on a GPU: a capture that fails half way, and a server that captures none."""

# ruff: noqa: F403

import pytest
import torch
from test_fallbacks import *
from worker_scenarios import of_many_lengths, serve

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: captures that fail"
)


def test_a_server_that_captures_nothing(start_probed, texts, runs):
    server = start_probed(
        *("--speculative-dynamic", "never"), *("--cuda-graph-backend-decode", "disabled")
    )
    outcome = serve(server, of_many_lengths(texts[:10], 20, 60), runs)
    server.wait_until_idle()
    told = server.state()
    log = server.log.read_text()
    server.stop()

    outcome.require_right()
    assert {step.graph for step in outcome.steps} == {False}
    assert {step.family for step in outcome.steps} <= {"plain_eager", "speculative_eager"}
    assert log.count("A decode step runs without a CUDA graph") == 1
    assert told["capture_failures"] == [], "nothing was to be captured"
