"""The torch kernels of the CPU engine against their plain definitions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_specv2.cpu import allocation, kernels, reference
from sglang_specv2.errors import UnsupportedError

CONTEXT = 24
ROWS = 6


def ints(values, dtype=torch.int64):
    return torch.tensor(values, dtype=dtype)


@st.composite
def ragged(draw):
    """Distinct request slots with a range of positions each, empty ones among them."""
    rows = draw(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=ROWS, unique=True))
    ranges = [sorted(draw(st.tuples(*[st.integers(0, CONTEXT)] * 2))) for _ in rows]
    return rows, [r[0] for r in ranges], [r[1] for r in ranges]


def table():
    return torch.arange(ROWS * CONTEXT, dtype=torch.int32).view(ROWS, CONTEXT) * 7 + 3


@given(ragged(), st.sampled_from([torch.int32, torch.int64]))
def test_slots_are_written_where_the_definition_writes_them(batch, dtype):
    rows, start, end = batch
    total = sum(end) - sum(start)
    slots = list(range(1000, 1000 + total))
    expected = table().tolist()
    reference.write_slots(expected, rows, start, end, slots)

    written = table()
    kernels.assign_req_to_token_pool(
        ints(rows), written, ints(start, dtype), ints(end, dtype), ints(slots), CONTEXT
    )

    assert written.tolist() == expected


@given(ragged(), st.integers(0, 3))
def test_slots_are_read_in_order_and_nothing_is_written_behind_them(batch, spare):
    rows, start, end = batch
    expected = reference.read_slots(table().tolist(), rows, start, end)

    out = torch.full((len(expected) + spare,), -5)
    kernels.assign_extend_cache_locs(ints(rows), table(), ints(start), ints(end), out, CONTEXT)

    assert out.tolist() == expected + [-5] * spare


@given(st.lists(st.integers(0, ROWS - 1), min_size=1, unique=True), st.integers(1, 4), st.data())
def test_draft_slots_lie_behind_the_sequence(rows, num_steps, data):
    seq_lens = [data.draw(st.integers(0, CONTEXT - num_steps)) for _ in rows]
    end = [seq_len + num_steps for seq_len in seq_lens]

    out = torch.empty(len(rows) * num_steps, dtype=torch.int64)
    kernels.assign_draft_cache_locs_contiguous(
        ints(rows), table(), ints(seq_lens), out, CONTEXT, 1, num_steps
    )

    assert out.tolist() == reference.read_slots(table().tolist(), rows, seq_lens, end)


@given(st.lists(st.tuples(st.lists(st.integers(0, 99), min_size=4, max_size=4), st.integers(1, 4))))
def test_the_bonus_token_is_the_last_accepted_one(requests):
    tokens = [request[0] for request in requests]
    lens = [request[1] for request in requests]
    out = torch.empty(len(requests), dtype=torch.int32)

    kernels.fill_bonus_tokens(
        ints(tokens, torch.int32).view(-1, 4), ints(lens, torch.int32), out, 4
    )

    assert out.tolist() == reference.bonus_tokens(tokens, lens)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 6))
def test_a_chain_links_each_node_to_the_next(seq_lens, n):
    bs = len(seq_lens)
    links = [torch.full((bs, n), -1) for _ in range(3)]
    positions = torch.empty(bs * n, dtype=torch.int64)
    mask = torch.ones(bs * n * n, dtype=torch.bool)

    kernels.build_chain(
        torch.empty(0), torch.empty(0), ints(seq_lens), mask, positions, *links, 1, n - 1, n, 1
    )

    index, next_token, next_sibling = (link.tolist() for link in links)
    assert index == [[b * n + i for i in range(n)] for b in range(bs)]
    assert next_token == [[*range(1, n), -1]] * bs
    assert next_sibling == [[-1] * n] * bs
    assert positions.view(bs, n).tolist() == [[s + i for i in range(n)] for s in seq_lens]
    assert mask.view(bs, n, n).tolist() == [[[j <= i for j in range(n)] for i in range(n)]] * bs


def test_trees_and_other_masks_are_refused():
    nothing = torch.empty(0)
    rest = (nothing,) * 7
    with pytest.raises(UnsupportedError, match=r"topk 1, got 4"):
        kernels.build_chain(nothing, *rest, 4, 2, 3, 1)
    with pytest.raises(UnsupportedError, match=r"got mode 0"):
        kernels.build_chain(nothing, *rest, 1, 2, 3, 0)


@st.composite
def chains(draw):
    """A batch of drafts and the target's choices, of so few tokens that many of them agree."""
    n = draw(st.integers(2, 5))
    token = st.integers(0, 2)
    row = st.tuples(
        st.lists(token, min_size=n - 1, max_size=n - 1), st.lists(token, min_size=n, max_size=n)
    )
    return n, draw(st.lists(row, min_size=1, max_size=5))


def read_outcome(n, bs, predicts, accept_index, accept_token_num):
    """Each request's gained tokens, read as SGLang reads them; checks the padding on the way."""
    gained = []
    for b in range(bs):
        kept = int(accept_token_num[b]) + 1
        assert accept_index[b].tolist() == [b * n + i for i in range(kept)] + [-1] * (n - kept)
        gained.append(predicts[accept_index[b, :kept].long()].tolist())
    return gained


@given(chains())
def test_greedy_verification_keeps_the_agreeing_front(batch):
    n, requests = batch
    bs = len(requests)
    candidates = ints([[9, *drafts] for drafts, _ in requests])
    rows = torch.arange(bs * n).view(bs, n)
    predicts = torch.zeros(bs * n, dtype=torch.int32)
    accept_index = torch.full((bs, n), -1, dtype=torch.int32)
    accept_token_num = torch.empty(bs, dtype=torch.int32)

    kernels.verify_chain_greedy(
        predicts=predicts,
        accept_index=accept_index,
        accept_token_num=accept_token_num,
        candidates=candidates,
        retrive_index=rows,
        retrive_next_token=rows,
        retrive_next_sibling=rows,
        target_predict=ints([choices for _, choices in requests]),
    )

    expected = [reference.greedy_chain(drafts, choices) for drafts, choices in requests]
    assert read_outcome(n, bs, predicts, accept_index, accept_token_num) == expected


@st.composite
def paged(draw):
    """Requests that hold whole and partial pages and grow by some positions."""
    page_size = draw(st.sampled_from([1, 2, 4, 16]))
    lengths = draw(
        st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=5)
    )
    prefix_lens = [held for held, _ in lengths]
    seq_lens = [held + more for held, more in lengths]
    last_loc, page = [], 0
    for held in prefix_lens:
        page += 10
        last_loc.append(page * page_size + (held - 1) % page_size if held else -1)
    free_pages = draw(st.permutations(range(100, 100 + sum(seq_lens) + 1)))
    return page_size, prefix_lens, seq_lens, last_loc, free_pages


@given(paged())
def test_pages_are_filled_before_new_ones_are_taken(batch):
    page_size, prefix_lens, seq_lens, last_loc, free_pages = batch
    out = torch.empty(sum(seq_lens) - sum(prefix_lens), dtype=torch.int64)

    allocation.alloc_extend(
        ints(prefix_lens), ints(seq_lens), ints(last_loc), ints(free_pages), out, 8, page_size
    )

    assert out.tolist() == reference.allocate(
        prefix_lens, seq_lens, last_loc, free_pages, page_size
    )


@given(paged())
def test_a_decode_step_takes_one_slot_each(batch):
    page_size, prefix_lens, _, last_loc, free_pages = batch
    seq_lens = [held + 1 for held in prefix_lens]
    out = torch.empty(len(seq_lens), dtype=torch.int64)

    allocation.alloc_decode(ints(seq_lens), ints(last_loc), ints(free_pages), out, 8, page_size)

    assert out.tolist() == reference.allocate(
        prefix_lens, seq_lens, last_loc, free_pages, page_size
    )


def test_too_few_pages_leave_the_output_alone():
    out = torch.full((9,), -5)
    allocation.alloc_extend(ints([0]), ints([9]), ints([-1]), ints([3, 4]), out, 1, 4)
    assert out.tolist() == [-5] * 9


@settings(max_examples=30)
@given(st.integers(0, 3), st.booleans())
def test_the_relay_hands_out_the_rows_of_the_batch(width, with_hidden):
    buffers = [torch.randn(ROWS, width) for _ in range(2)] + [torch.arange(ROWS)]
    hidden = torch.randn(ROWS, 3) if with_hidden else None
    rows = ints([4, 0, 4], torch.int32)

    got = kernels.gather_spec_extras(rows, *buffers, hidden)

    for out, buffer in zip(got, [*buffers, hidden], strict=True):
        if buffer is None:
            assert out is None
        else:
            assert torch.equal(out, torch.stack([buffer[4], buffer[0], buffer[4]]))


def test_only_rows_that_stay_may_be_copied():
    zero = torch.zeros(2, dtype=torch.int64)
    kernels.copy_all_layer_kv_cache(zero, zero, zero, zero)
    with pytest.raises(UnsupportedError, match="topk 1"):
        kernels.copy_all_layer_kv_cache(zero, zero, zero, zero + 1)
