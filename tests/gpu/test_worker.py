"""The worker on a GPU: real graphs of both families, real overlap, tokens compared exactly."""

import pytest
import torch
from worker_scenarios import (
    Request,
    of_many_lengths,
    random_case,
    require_same_globals_after_switches,
    serve,
    serve_watched,
)

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: CUDA graphs and streams"
)

FROM_THE_REFERENCE = 1e-4


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed("--speculative-disable-batch-threshold", "3")


@pytest.fixture(autouse=True)
def _nothing_is_left(server):
    yield
    server.wait_until_idle()
    server.schedule("")


@pytest.mark.parametrize("runs", ["1s 1p", "2s 2p", "7s 7p", random_case(1), random_case(2, 3)])
def test_requests_that_come_and_go_through_forced_switches(server, texts, runs):
    outcome = serve(server, of_many_lengths(texts, 30, 160), runs, apart_s=0.02)

    outcome.require_right()
    assert {step.speculative for step in outcome.steps} == {True, False}
    assert outcome.switches() >= 8
    assert {accept[2] for accept in outcome.accepts()} == {1, 2, 3}


def test_every_batch_size_below_and_above_the_largest_graph(server, texts):
    """One to twelve requests, so every capture size up to 8, those between, and eager above."""
    assert "One-token draft extend: captured" in server.log.read_text()
    for runs in ("1p", "1s", "1s 1p"):
        outcome = serve(server, of_many_lengths(texts, 40, 430), runs)
        outcome.require_right()
        assert {step.graph for step in outcome.steps if len(step.rows) <= 8} == {True}
        assert {step.graph for step in outcome.steps if len(step.rows) > 8} == {False}
        families = {(step.family, len(step.rows)) for step in outcome.steps}
        if "p" in runs:
            assert {rows for family, rows in families if family == "plain"} >= set(range(1, 9))
            assert {rows for family, rows in families if family == "plain_eager"} - set(range(9))
        if "s" in runs:
            assert {rows for family, rows in families if family == "speculative"} >= {4, 8}
        alone = serve(server, [Request(texts[0], 60)], runs)
        alone.require_right()
        assert {step.graph for step in alone.steps} == {True}


@pytest.mark.parametrize("runs", ["3s 1p", "3s 2p", "3s 17p", random_case(3, 6)])
def test_the_drafts_entries_after_off_periods(server, texts, runs):
    requests = of_many_lengths(texts[:8], 20, 70)
    outcome, draft_kv = serve_watched(server, requests, runs, apart_s=0.02)

    outcome.require_right()
    assert draft_kv.snapshots > 100
    assert draft_kv.worst <= FROM_THE_REFERENCE


def test_one_request_lives_through_256_plain_steps(server, texts):
    outcome = serve(server, [Request(texts[i], 430) for i in (0, 4, 8)], "6s 260p 200s")

    outcome.require_right()
    plain = [n for n, step in enumerate(outcome.steps) if not step.speculative]
    assert len(plain) == 260
    assert [n for n, step in enumerate(outcome.steps) if step.resumed and n > 6] == [plain[-1] + 1]


def test_five_hundred_switches_leave_every_slot_free(server, texts):
    before = _switches(server)
    for _ in range(4):
        outcome = serve(server, of_many_lengths(texts, 100, 300), "1s 1p")
        outcome.require_right()
        server.wait_until_idle()
    assert _switches(server) - before >= 500


def test_the_threshold_switches_both_ways(server, texts):
    outcome = serve(server, of_many_lengths(texts, 30, 300), "")

    outcome.require_right()
    assert outcome.switches() >= 1
    assert outcome.steps[-1].speculative
    assert any(not step.speculative for step in outcome.steps)


def test_a_full_extend_in_each_plain_step(start_probed, texts):
    extend = start_probed(*("--speculative-dynamic", "never", "--speculative-draft-sync", "extend"))
    outcome = serve(extend, of_many_lengths(texts, 30, 120), "3s 5p", apart_s=0.02)
    outcome.require_right()
    extend.wait_until_idle()
    extend.stop()


def _switches(server):
    return sum(server.state()["switches"].values())


def test_sglangs_globals_are_as_before(server, texts):
    require_same_globals_after_switches(server, texts)
