"""Faults that graphs and streams could hide are seen by what the other tests compare.

A fault inside a plain step is captured with its graphs, so each has a server of its own.
"""

import pytest
import torch
from live_server import ServerError
from worker_scenarios import of_many_lengths, serve, serve_watched

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: faults are captured into its graphs"
)

NEVER = ("--speculative-dynamic", "never")


@pytest.mark.parametrize(
    "fault", ["forget_the_pending_write", "wrong_slot", "wrong_draft_position"]
)
def test_a_wrong_draft_entry_is_seen(start_probed, texts, fault):
    server = start_probed(*NEVER, SPECV2_PROBE_FAULT=fault)
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts[:6], 40, 80), "2s 5p")
    server.stop()

    assert outcome.wrong_tokens() == [], "drafts are only proposals"
    assert draft_kv.worst > 0.1
    assert outcome.wrong_accepts() or fault == "wrong_draft_position"


@pytest.mark.parametrize(
    "fault", ["runner_not_swapped_back", "stride_of_a_verify", "length_not_advanced"]
)
def test_a_wrong_step_is_seen(start_probed, texts, fault):
    """In tokens or in graphs that are not replayed, unless the server does not live to send any."""
    server = start_probed(*NEVER)
    server.plant(fault)
    try:
        outcome = serve(server, of_many_lengths(texts[:4], 40, 80), "2s 5p")
    except ServerError:
        assert not server.is_alive() or "Traceback" in server.log.read_text()
    else:
        assert outcome.wrong_tokens() or {step.graph for step in outcome.steps} == {True, False}
    finally:
        server.stop()
