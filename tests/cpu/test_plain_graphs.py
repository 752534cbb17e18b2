"""Plain graphs, on stand-ins for them: padding, growth, shrinkage, eager above.

The capture sizes leave gaps, so that batches are padded, and end below the largest batch.
"""

import pytest
from worker_scenarios import of_many_lengths, random_case, serve_watched

FROM_THE_REFERENCE = 5e-5
SIZES = (2, 4, 7)


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed(
        *("--speculative-disable-batch-threshold", "3"),
        env={"SPECV2_PROBE_PADDED_GRAPHS": ",".join(map(str, SIZES))},
    )


def test_batches_that_shrink_through_every_graph(server, texts):
    """All requests at once, of different lengths: the batch goes from twelve to one."""
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts, 20, 160), "3s 2p")
    server.wait_until_idle()

    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
    plain = {(step.family, len(step.rows)) for step in outcome.steps if not step.speculative}
    assert {family for family, _ in plain} == {"plain", "plain_eager"}
    assert server.log.read_text().count("A decode step runs without a CUDA graph") == 1
    riding = {rows for family, rows in plain if family == "plain"}
    assert riding - set(SIZES), "no batch was padded"
    assert len({next(size for size in SIZES if size >= rows) for rows in riding}) == len(SIZES)


@pytest.mark.parametrize("runs", ["3s 1p", "2s 9p", random_case(4, 6)])
def test_requests_that_come_and_go(server, texts, runs):
    outcome, draft_kv = serve_watched(server, of_many_lengths(texts, 20, 90), runs, apart_s=0.03)
    server.wait_until_idle()

    outcome.require_right()
    assert draft_kv.worst <= FROM_THE_REFERENCE
