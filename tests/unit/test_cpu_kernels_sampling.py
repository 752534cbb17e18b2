"""Verification by sampling on the CPU engine: against plain definitions, and its distribution."""

import struct

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sglang_specv2.cpu import reference, sampling

GRAIN = 64
"""Probabilities and coins are multiples of 1/64: sums of them are exact in float32."""


@st.composite
def distributions(draw, vocab=5):
    """A row of probabilities in multiples of 1/64."""
    cuts = sorted(draw(st.lists(st.integers(0, GRAIN), min_size=vocab - 1, max_size=vocab - 1)))
    edges = [0, *cuts, GRAIN]
    return [(edges[i + 1] - edges[i]) / GRAIN for i in range(vocab)]


rows = st.lists(distributions(), min_size=1, max_size=4)
coins = st.integers(0, GRAIN - 1).map(lambda i: i / GRAIN)


@given(rows, st.data())
def test_top_k(probs, data):
    ks = [data.draw(st.integers(1, 8)) for _ in probs]
    got = sampling.top_k_renorm_prob(torch.tensor(probs), torch.tensor(ks, dtype=torch.int32))
    want = [reference.top_k(row, k) for row, k in zip(probs, ks, strict=True)]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float32))


@given(rows, st.data())
def test_top_p(probs, data):
    ps = [data.draw(st.integers(1, GRAIN)) / GRAIN for _ in probs]
    got = sampling.top_p_renorm_prob(torch.tensor(probs), torch.tensor(ps))
    want = [reference.top_p(row, p) for row, p in zip(probs, ps, strict=True)]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float32))


def verify(drafts, probs, uniform, final, threshold_single=1.0, threshold_acc=1.0):
    """Runs the kernel on a batch; returns each request's gained tokens."""
    bs, n = len(drafts), len(drafts[0]) + 1
    rows = torch.arange(bs * n).view(bs, n)
    predicts = torch.zeros(bs * n, dtype=torch.int32)
    accept_index = torch.full((bs, n), -1, dtype=torch.int32)
    accepted = torch.empty(bs, dtype=torch.int32)
    sampling.verify_chain_sampling(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accepted,
        candidates=torch.tensor([[9, *row] for row in drafts]),
        retrive_index=rows,
        retrive_next_token=rows,
        retrive_next_sibling=rows,
        uniform_samples=torch.tensor(uniform, dtype=torch.float32),
        uniform_samples_for_final_sampling=torch.tensor(final, dtype=torch.float32),
        target_probs=torch.tensor(probs, dtype=torch.float32),
        draft_probs=torch.zeros(0),
        threshold_single=threshold_single,
        threshold_acc=threshold_acc,
        deterministic=True,
    )
    for b in range(bs):
        kept = int(accepted[b]) + 1
        assert accept_index[b].tolist() == [b * n + i for i in range(kept)] + [-1] * (n - kept)
    return [predicts[row[row >= 0].long()].tolist() for row in accept_index]


@given(st.integers(1, 4), st.integers(1, 4), st.sampled_from([0.25, 0.5, 1.0]), st.data())
def test_a_chain_is_sampled_as_defined(bs, length, threshold, data):
    def several(strategy, count):
        return data.draw(st.lists(strategy, min_size=count, max_size=count))

    drafts = [several(st.integers(0, 4), length) for _ in range(bs)]
    probs = [several(distributions(), length + 1) for _ in range(bs)]
    uniform = [several(coins, length + 1) for _ in range(bs)]
    final = several(coins, bs)
    single = data.draw(st.sampled_from([0.5, 1.0]))

    got = verify(drafts, probs, uniform, final, single, threshold)

    want = [
        reference.sampled_chain(*request, single, threshold)
        for request in zip(drafts, probs, uniform, final, strict=True)
    ]
    assert got == want


def test_a_chain_has_the_targets_distribution():
    """Each token's law is the target's, whatever the drafts: 40,000 draws, 4 standard errors."""
    draws = 40_000
    torch.manual_seed(0)
    first = [0.5, 0.2, 0.2, 0.1]
    second = [0.1, 0.6, 0.0, 0.3]
    gained = verify(
        [[1, 3]] * draws,
        [[first, second, first]] * draws,
        torch.rand(draws, 3).tolist(),
        torch.rand(draws).tolist(),
    )

    def check(tokens, law):
        counts = torch.bincount(torch.tensor(tokens), minlength=4) / len(tokens)
        for seen, p in zip(counts.tolist(), law, strict=True):
            assert seen == pytest.approx(p, abs=4 * (p * (1 - p) / len(tokens)) ** 0.5 + 1e-9)

    check([tokens[0] for tokens in gained], first)
    check([tokens[1] for tokens in gained if len(tokens) > 1], second)
    check([tokens[2] for tokens in gained if len(tokens) > 2], first)


def test_a_token_of_probability_zero_is_never_accepted():
    assert verify([[2]], [[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]], [[0.0, 0.0]], [0.75]) == [[1]]


def test_a_draft_of_threshold_single_is_accepted_outright():
    chain = ([[0]], [[[0.5, 0.5], [0.0, 1.0]]], [[0.75, 0.0]], [0.25])
    assert verify(*chain, threshold_single=0.5) == [[0, 1]]
    assert verify(*chain, threshold_single=1.0) == [[1]]


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1)), min_size=1, max_size=3
    ),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3),
)
def test_the_hash_is_murmur3(pairs, columns):
    got = sampling.murmur_hash32(
        torch.tensor([seed for seed, _ in pairs], dtype=torch.uint64),
        torch.tensor([position for _, position in pairs]),
        torch.tensor(columns),
    )
    assert got.dtype == torch.uint32
    assert got.tolist() == [
        [reference.murmur_hash32(struct.pack("<QII", *pair, column)) for column in columns]
        for pair in pairs
    ]


@pytest.mark.parametrize(("text", "digest"), [(b"", 0), (b"test", 0xBA6BD213)])
def test_the_plain_hash_has_known_digests(text, digest):
    assert reference.murmur_hash32(text) == digest
