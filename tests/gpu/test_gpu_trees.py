"""Trees of drafts (topk 4, 16 draft tokens): only the speculative family differs.

The reference predicts chains, so accept lengths are compared with those of a draft that was never
off, position by position; tokens and the draft's entries with the reference, as everywhere.
"""

import pytest
import torch
from worker_scenarios import Request, of_many_lengths, random_runs, serve, serve_watched

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: the CPU engine drafts chains only"
)

FROM_THE_REFERENCE = 1e-4
TREE = (
    *("--speculative-eagle-topk", "4", "--speculative-num-steps", "3"),
    *("--speculative-num-draft-tokens", "16"),
)
DRAFT_TOKENS = 16


@pytest.fixture(scope="module")
def server(start_probed):
    return start_probed(*TREE, "--speculative-disable-batch-threshold", "3")


@pytest.fixture(autouse=True)
def _nothing_is_left(server):
    yield
    server.wait_until_idle()
    server.schedule("")


def accepted_at(outcome):
    """Accept length by text and position."""
    return {
        (tuple(outcome.requests[row.rid].text.prompt), row.position): row.accepted
        for step in outcome.steps
        if step.speculative
        for row in step.rows
    }


def test_tokens_and_entries_in_every_setting(server, texts, runs):
    requests = of_many_lengths(texts[:8], 30, 90)
    outcome, draft_kv = serve_watched(server, requests, runs, apart_s=0.02)

    assert outcome.wrong_tokens() == []
    assert draft_kv.worst <= FROM_THE_REFERENCE
    strides = {step.speculative: step.stride for step in outcome.steps}
    assert strides == {
        mode: DRAFT_TOKENS if mode else 1 for mode in {step.speculative for step in outcome.steps}
    }


def test_acceptance_is_as_if_never_off(server, texts):
    """After an off period steps begin elsewhere; positions that both runs have are compared."""
    requests = [Request(text, 200) for text in texts[:6]]
    never_off = accepted_at(serve(server, requests, "1s"))
    assert max(never_off.values()) > 3, "more than a chain of two drafts could"
    compared = 0
    for runs in ("2s 1p", "3s 2p", "5s 17p", "1p 4s", random_runs(3, 6)):
        outcome = serve(server, requests, runs)
        assert outcome.wrong_tokens() == []
        assert any(step.resumed for step in outcome.steps)
        mine = accepted_at(outcome)
        both = mine.keys() & never_off.keys()
        assert {at: mine[at] for at in both} == {at: never_off[at] for at in both}
        compared += len(both)
        server.wait_until_idle()
    assert compared > 200


def test_the_threshold_switches_trees_off_and_on(server, texts):
    outcome = serve(server, of_many_lengths(texts, 30, 300), "")

    assert outcome.wrong_tokens() == []
    assert outcome.switches() >= 1
    assert outcome.steps[-1].speculative
    assert any(not step.speculative for step in outcome.steps)


def test_every_batch_size_below_and_above_the_largest_graph(server, texts):
    outcome = serve(server, of_many_lengths(texts, 60, 300), "1s 1p")

    assert outcome.wrong_tokens() == []
    assert {step.graph for step in outcome.steps if len(step.rows) <= 8} == {True}
    assert {step.graph for step in outcome.steps if len(step.rows) > 8} == {False}


@pytest.mark.parametrize("sync", ["extend", "off"])
def test_the_other_draft_syncs(start_probed, texts, sync):
    other = start_probed(*TREE, "--speculative-dynamic", "never", "--speculative-draft-sync", sync)
    outcome = serve(other, of_many_lengths(texts[:8], 30, 90), "2s 3p", apart_s=0.02)
    other.wait_until_idle()
    other.stop()

    assert outcome.wrong_tokens() == []
