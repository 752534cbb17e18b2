"""BufferSpec and StaticBuffers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuda_graphs import BufferSpec, InputError, SizeError, StaticBuffers

SPECS = {
    "token_ids": BufferSpec((), torch.int64, pad_value=-1),
    "hidden": BufferSpec((3,), torch.float32, pad_value=0.5),
    "mask": BufferSpec((2, 2), torch.bool, pad_value=True),
}
MAX_ROWS = 8


def rows(batch_size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {
        "token_ids": torch.randint(0, 100, (batch_size,), generator=generator),
        "hidden": torch.rand(batch_size, 3, generator=generator),
        "mask": torch.rand(batch_size, 2, 2, generator=generator) < 0.5,
    }


def snapshot(buffers):
    return {name: view.clone() for name, view in buffers.views(buffers.max_rows).items()}


def assert_equal(views, expected):
    assert views.keys() == expected.keys()
    for name, view in views.items():
        torch.testing.assert_close(view, expected[name], rtol=0, atol=0)


def test_fresh_buffers_hold_padding():
    buffers = StaticBuffers(SPECS, MAX_ROWS)
    for name, view in buffers.views(MAX_ROWS).items():
        spec = SPECS[name]
        assert (view.shape, view.dtype) == ((MAX_ROWS, *spec.row_shape), spec.dtype)
        assert (view == spec.pad_value).all()
    assert buffers.nbytes == MAX_ROWS * (8 + 3 * 4 + 4)
    assert buffers.device == torch.device("cpu")


def test_views_share_one_allocation_that_never_moves():
    buffers = StaticBuffers(SPECS, MAX_ROWS)
    pointers = {name: view.data_ptr() for name, view in buffers.views(MAX_ROWS).items()}
    for size in (1, 5, 8, 2):
        buffers.fill(size, size, rows(size))
        for name, view in buffers.views(size).items():
            assert view.data_ptr() == pointers[name]
            assert view.shape[0] == size
            assert view.is_contiguous()


@given(st.lists(st.tuples(st.integers(1, MAX_ROWS), st.integers(0, 3)), min_size=1, max_size=6))
def test_padding_never_shows_an_earlier_batch(batches):
    buffers = StaticBuffers(SPECS, MAX_ROWS)
    for seed, (batch_size, padding) in enumerate(batches):
        padded = min(batch_size + padding, MAX_ROWS)
        live = rows(batch_size, seed)
        buffers.fill(batch_size, padded, live)
        for name, view in buffers.views(padded).items():
            assert torch.equal(view[:batch_size], live[name])
            assert (view[batch_size:] == SPECS[name].pad_value).all()


def test_cleared_buffers_are_as_fresh():
    buffers = StaticBuffers(SPECS, MAX_ROWS)
    fresh = snapshot(buffers)
    buffers.fill(5, 8, rows(5))
    buffers.clear()
    assert_equal(buffers.views(MAX_ROWS), fresh)


def test_inputs_are_copied():
    buffers, live = StaticBuffers(SPECS, MAX_ROWS), rows(2)
    buffers.fill(2, 2, live)
    live["token_ids"].zero_().sub_(7)
    assert (buffers.views(2)["token_ids"] != -7).all()


def test_strided_inputs_and_inputs_with_autograd_are_taken():
    buffers = StaticBuffers({"x": BufferSpec((3,), torch.float32)}, 4)
    x = torch.rand(3, 2, requires_grad=True)
    buffers.fill(2, 4, {"x": x.t()})
    assert torch.equal(buffers.views(2)["x"], x.t())
    assert not buffers.views(2)["x"].requires_grad


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"token_ids": torch.zeros(3, dtype=torch.int64)},
            r"input 'token_ids': expected shape \[2\], got \[3\]; pass one row per live request, "
            "of which there are 2",
        ),
        (
            {"hidden": torch.zeros(2, 4)},
            r"input 'hidden': expected shape \[2, 3\], got \[2, 4\]; pass one row per live request",
        ),
        (
            {"token_ids": torch.zeros(2, dtype=torch.int32)},
            r"input 'token_ids': expected torch.int64, got torch.int32; "
            r"cast it with .to\(torch.int64\)",
        ),
        (
            {"token_ids": [1, 2]},
            r"input 'token_ids': expected a tensor, got list; pass a torch.int64 tensor of "
            r"shape \[2\]",
        ),
        (
            {"positions": torch.zeros(2)},
            "inputs: expected hidden, mask, token_ids, got hidden, mask, positions, token_ids; "
            "pass every declared input",
        ),
    ],
)
def test_wrong_inputs_are_named_and_nothing_is_written(change, message):
    buffers = StaticBuffers(SPECS, MAX_ROWS)
    buffers.fill(5, 8, rows(5))
    before = snapshot(buffers)
    with pytest.raises(InputError, match=message):
        buffers.fill(2, 4, rows(2, seed=1) | change)
    assert_equal(buffers.views(MAX_ROWS), before)


def test_a_missing_input_is_named():
    live = rows(2)
    del live["mask"]
    with pytest.raises(InputError, match="expected hidden, mask, token_ids, got hidden, token_ids"):
        StaticBuffers(SPECS, MAX_ROWS).fill(2, 2, live)


@pytest.mark.parametrize(
    ("batch_size", "padded", "message"),
    [
        (0, 4, "batch size: expected an int, at least 1, got 0"),
        (4, 3, "padded batch size: expected at least the 4 live rows, got 3"),
        (4, 9, "rows: expected at most 8, the size of the buffers, got 9"),
    ],
)
def test_wrong_row_counts(batch_size, padded, message):
    with pytest.raises(SizeError, match=message):
        StaticBuffers(SPECS, MAX_ROWS).fill(batch_size, padded, rows(4))


@pytest.mark.parametrize("count", [0, 9])
def test_views_stay_inside_the_buffers(count):
    with pytest.raises(SizeError):
        StaticBuffers(SPECS, MAX_ROWS).views(count)


@pytest.mark.parametrize("max_rows", [0, -1, 1.5])
def test_buffers_need_rows(max_rows):
    with pytest.raises(SizeError, match="max_rows: expected an int, at least 1"):
        StaticBuffers(SPECS, max_rows)


@pytest.mark.parametrize("row_shape", [(0,), (3, -1), (2.0,)])
def test_impossible_row_shapes(row_shape):
    with pytest.raises(SizeError, match=r"row_shape .* expected an int, at least 1"):
        BufferSpec(row_shape, torch.float32)


@pytest.mark.parametrize(
    ("dtype", "pad_value"),
    [
        (torch.int64, 0.5),
        (torch.int32, float("nan")),
        (torch.int32, float("inf")),
        (torch.uint8, -1),
        (torch.int8, 128),
        (torch.bool, 2),
    ],
)
def test_pad_values_that_the_dtype_cannot_hold(dtype, pad_value):
    with pytest.raises(InputError, match=f"pad_value: expected a value that {dtype} can hold"):
        BufferSpec((), dtype, pad_value)


@pytest.mark.parametrize(
    ("dtype", "pad_value"),
    [(torch.int8, 127), (torch.int32, 2.0), (torch.bool, 1), (torch.bfloat16, float("-inf"))],
)
def test_pad_values_that_the_dtype_holds(dtype, pad_value):
    buffers = StaticBuffers({"x": BufferSpec((), dtype, pad_value)}, 1)
    assert buffers.views(1)["x"].item() == pad_value
