"""GraphKey and CaptureSizes."""

from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_graphs import CaptureSizes, GraphKey, SizeError


def test_keys_are_values():
    assert GraphKey("plain", 8) == GraphKey("plain", 8)
    assert len({GraphKey("plain", 8), GraphKey("plain", 8), GraphKey("verify", 8)}) == 2
    assert sorted([GraphKey("verify", 1), GraphKey("plain", 16), GraphKey("plain", 2)]) == [
        GraphKey("plain", 2),
        GraphKey("plain", 16),
        GraphKey("verify", 1),
    ]
    assert str(GraphKey("plain", 8)) == "plain[8]"
    with pytest.raises(FrozenInstanceError):
        GraphKey("plain", 8).batch_size = 9


@pytest.mark.parametrize("batch_size", [0, -1, 1.0, True, "8", None])
def test_a_key_needs_a_batch_size(batch_size):
    with pytest.raises(SizeError, match="batch size: expected an int, at least 1, got"):
        GraphKey("plain", batch_size)


def test_sizes_are_sorted_and_unique():
    sizes = CaptureSizes(iter([8, 1, 4, 8, 1]))
    assert list(sizes) == [1, 4, 8]
    assert list(reversed(sizes)) == [8, 4, 1]
    assert (len(sizes), sizes.largest) == (3, 8)
    assert 4 in sizes
    assert 5 not in sizes
    assert repr(sizes) == "CaptureSizes([1, 4, 8])"


def test_sizes_are_values():
    assert CaptureSizes([1, 2]) == CaptureSizes([2, 1])
    assert CaptureSizes([1, 2]) != CaptureSizes([1, 3])
    assert CaptureSizes([1, 2]) != [1, 2]
    assert len({CaptureSizes([1, 2]), CaptureSizes([2, 1])}) == 1
    with pytest.raises(AttributeError):
        CaptureSizes([1]).more = 2


def test_no_sizes():
    sizes = CaptureSizes()
    assert (list(sizes), len(sizes), sizes.largest, sizes.pad(1)) == ([], 0, 0, None)
    assert not sizes


@pytest.mark.parametrize("size", [0, -4, 2.0, True, "8", None])
def test_impossible_sizes(size):
    with pytest.raises(SizeError, match="capture size: expected an int, at least 1, got"):
        CaptureSizes([1, size])


@given(st.lists(st.integers(1, 300)), st.integers(1, 320))
def test_pad_is_the_smallest_size_that_holds_the_batch(sizes, batch_size):
    assert CaptureSizes(sizes).pad(batch_size) == min(
        (size for size in sizes if size >= batch_size), default=None
    )
