import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_specv2.cli.explain import LARGEST_USUAL_DRAFT, Shape, decompose, explain, sizes
from sglang_specv2.cli.features import shape
from sglang_specv2.errors import ConfigError

CLASSIC = (
    "RuntimeError: The size of tensor a (160) must match the size of tensor b (2) at "
    "non-singleton dimension 0"
)


def first(rows, **known):
    found = decompose(rows, Shape(**known))[0]
    return found.requests, found.per_request


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (CLASSIC, (160, 2)),
        ("…tensor a (160) must match the size of tensor b (2)…", (160, 2)),
        ("size of tensor a (2) must match\n the size of tensor b (48)", (2, 48)),
        ("Sizes of tensors must match. Expected size 10 but got size 160 for tensor", (10, 160)),
        ("shape mismatch: value tensor of shape [160] cannot be broadcast to [10, 4]", (160, 10)),
    ],
)
def test_sizes(message, expected):
    assert sizes(message) == expected


@pytest.mark.parametrize("message", ["", "out of memory", "tensor a (x) and tensor b (2)"])
def test_other_texts_are_refused(message):
    with pytest.raises(ConfigError, match="expected a shape error such as"):
        sizes(message)


def test_the_classic():
    text = explain(CLASSIC, Shape(num_draft_tokens=16))
    assert "160 = 10 requests × 16 draft tokens: a batch prepared for a verify" in text
    assert "2 = 2 requests: a batch prepared for a plain step" in text
    assert "Likeliest: 10 requests were prepared for a verify of 16 tokens each" in text
    assert "--speculative-dynamic always" in text


def test_same_requests_on_both_sides():
    text = explain("tensor a (4) must match the size of tensor b (64)", Shape(16))
    assert "then met the same requests at one row each" in text


def test_one_request_is_singular():
    text = explain("tensor a (16) must match the size of tensor b (3)", Shape(16))
    assert "16 = 1 request × 16 draft tokens" in text
    assert "1 request was prepared" in text


def test_without_flags_all_decompositions_are_listed_as_guesses():
    text = explain(CLASSIC, Shape())
    assert "guesses" in text
    assert "--speculative-num-draft-tokens" in text
    for line in ("20 requests × 8", "10 requests × 16", "32 requests × 5", "160 = 160 requests"):
        assert line in text


def test_not_speculation():
    text = explain("tensor a (161) must match the size of tensor b (3)", Shape(16))
    assert "do not come from speculation" in text
    assert "Likeliest" not in text


def test_trees():
    found = [(d.requests, d.per_request) for d in decompose(160, Shape(16, topk=4))]
    assert found == [(10, 16), (40, 4), (160, 1)]


def test_batches_that_cannot_run_are_left_out():
    assert first(160, max_running_requests=12) == (10, 16)
    assert [d.per_request for d in decompose(160, Shape(16, max_running_requests=48))] == [16]


def test_a_batch_above_the_limit_is_still_explained():
    assert first(160, num_draft_tokens=16, max_running_requests=4) == (10, 16)


@given(requests=st.integers(1, 512), draft=st.integers(2, LARGEST_USUAL_DRAFT), known=st.booleans())
def test_decompositions_multiply_and_hold_the_true_one(requests, draft, known):
    rows = requests * draft
    found = decompose(rows, Shape(num_draft_tokens=draft if known else None))
    assert all(d.requests * d.per_request == rows for d in found)
    assert (requests, draft) in [(d.requests, d.per_request) for d in found]
    assert len(set(found)) == len(found)
    if known:
        assert (found[0].requests, found[0].per_request) == (requests, draft)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], Shape()),
        (["--speculative-num-draft-tokens", "16", "--port", "1"], Shape(16)),
        (["--speculative-num-steps=2", "--speculative-eagle-topk", "1"], Shape(3, 1)),
        (["--speculative-num-steps", "5", "--speculative-eagle-topk", "4"], Shape(None, 4)),
        (["m", "--max-running-requests", "48"], Shape(None, None, 48)),
    ],
)
def test_shape_of_flags(argv, expected):
    assert shape(argv) == expected


def test_shape_of_wrong_flags():
    with pytest.raises(ConfigError, match="--speculative-num-steps"):
        shape(["--speculative-num-steps", "two"])
