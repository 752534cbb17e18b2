"""What a plain step computes between two graphs, against the same in Python."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sglang_specv2.step_ops import advance, relay, stage

SLOTS, POSITIONS = 9, 12
rows = st.lists(st.integers(1, SLOTS - 1), min_size=1, max_size=SLOTS - 1, unique=True)


@given(rows, st.data())
def test_lengths_grow_by_one_and_the_slot_is_that_of_the_old_length(requests, data):
    lengths = [data.draw(st.integers(0, POSITIONS - 1)) for _ in requests]
    table = torch.arange(SLOTS * POSITIONS, dtype=torch.int32).view(SLOTS, POSITIONS) + 100
    before = torch.tensor(lengths)

    after, slots = advance(before, torch.tensor(requests), table)

    assert after.tolist() == [length + 1 for length in lengths]
    assert before.tolist() == lengths, "the batch keeps its own"
    assert slots.dtype == torch.int64
    assert slots.tolist() == [
        100 + request * POSITIONS + length
        for request, length in zip(requests, lengths, strict=True)
    ]


@given(rows, st.integers(1, 3), st.sampled_from([torch.int32, torch.int64]), st.data())
def test_a_pending_row_relays_its_token_and_a_probability_of_zero(requests, topk, dtype, data):
    tokens = [data.draw(st.integers(0, 2**31 - 1)) for _ in requests]
    relayed_tokens = torch.full((SLOTS,), -7)
    probability = torch.ones(SLOTS, topk)

    relay(torch.tensor(tokens, dtype=dtype), torch.tensor(requests), relayed_tokens, probability)

    expected = dict(zip(requests, tokens, strict=True))
    assert relayed_tokens.tolist() == [expected.get(slot, -7) for slot in range(SLOTS)]
    assert (probability[:, 0] == 0).tolist() == [slot in expected for slot in range(SLOTS)]
    assert (probability[:, 1:] == 1).all()


@given(st.integers(1, 4), st.integers(0, 5), st.sampled_from([torch.int32, torch.int64]))
def test_a_steps_rows_are_copied_behind_those_that_are_there(rows, first, dtype):
    hidden, (slots, positions, tokens, requests) = torch.rand(rows, 3), torch.randint(9, (4, rows))
    to_hidden, to_integers = torch.zeros(10, 3), torch.full((4, 10), -1)

    integers = (slots, positions, tokens.to(dtype), requests)
    stage(hidden, integers, to_hidden, to_integers, first)

    assert torch.equal(to_hidden[first : first + rows], hidden)
    assert (to_hidden.count_nonzero(dim=1) > 0).sum() == rows
    assert torch.equal(
        to_integers[:, first : first + rows], torch.stack((slots, positions, tokens, requests))
    )
    assert (to_integers >= 0).sum() == 4 * rows
