"""The KV-only sync over any sequence of steps; K and V of the stand-in draft show their inputs."""

from types import SimpleNamespace

import pytest
import torch
from fakes import POSITIONS, SLOTS, FakeRunner, decode_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_specv2.draft_sync import kv
from sglang_specv2.draft_sync.kv import KVSync
from sglang_specv2.draft_sync.proposals import EmptyProposals, pending_rows

WIDTH, HIDDEN = 4, 6
SIZES = (2, 4, 8)


class Draft:
    """Stands for the draft's model; its name chooses the projection."""


class Projection:
    """K = (token, hidden state, position), V = its negative; one head."""

    def __init__(self, model):
        self.attention = SimpleNamespace(attn=SimpleNamespace(k_scale=None, v_scale=None))

    def embed(self, tokens):
        return tokens[:, None].float()

    def __call__(self, embeds, hidden_states, positions):
        key = torch.stack((embeds[:, 0], hidden_states[:, 0], positions.float()), dim=-1)
        return key[:, None], -key[:, None]


class Pool:
    """What lies in each KV slot, and how often it was written."""

    def __init__(self):
        self.entries, self.writes = {}, {}

    def set_kv_buffer(self, layer, slots, keys, values):
        for slot, key, value in zip(slots.tolist(), keys[:, 0], values[:, 0], strict=True):
            assert torch.equal(value, -key)
            self.entries[slot] = tuple(key.tolist())
            self.writes[slot] = self.writes.get(slot, 0) + 1


class Extend:
    """The draft's one-token forward: proposes the token after the one that it reads."""

    def __init__(self):
        self.asked = None

    def run(self, batch, **asked):
        self.asked = asked
        rows = len(batch.req_pool_indices)
        return SimpleNamespace(
            topk_p=torch.full((rows, 1), 0.25),
            topk_index=asked["next_token_ids"][:, None] + 1,
            hidden_states=torch.full((rows, HIDDEN), 7.0),
            draft_probs=None,
        )


@pytest.fixture(autouse=True, scope="module")
def _projection():
    before = kv.PROJECTIONS
    kv.PROJECTIONS = {"Draft": Projection}
    yield
    kv.PROJECTIONS = before


class Steps:
    """Runs steps through a sync as the worker does, and knows what has to be written."""

    def __init__(self):
        self.pool, self.extend = Pool(), Extend()
        draft_runner = SimpleNamespace(
            model=Draft(),
            device="cpu",
            ps=SimpleNamespace(tp_size=1),
            model_config=SimpleNamespace(dtype=torch.float32),
            token_to_kv_pool=self.pool,
        )
        proposals = EmptyProposals(SLOTS, 1, HIDDEN, torch.float32, None, "cpu")
        self.sync = KVSync(draft_runner, WIDTH, SLOTS, self.extend, proposals)
        self.due, self.written = {}, {}
        self.lengths = dict.fromkeys(range(1, SLOTS), 0)
        self.clock = 0

    def other(self):
        """A prefill or a speculative step."""
        self.sync.before_step(None)
        self._settle()

    def plain(self, requests, padded):
        """``padded``: the size of the graph that is replayed, or None."""
        self.clock += 1
        slots, positions, hidden, tokens = [], [], [], []
        for request in requests:
            position, self.lengths[request] = self.lengths[request], self.lengths[request] + 1
            positions.append(position)
            slots.append(request * POSITIONS + position)
            hidden.append(1000.0 * self.clock + request)
            tokens.append(100 * self.clock + request)
        rows = torch.tensor([[h] * WIDTH for h in hidden])
        self.sync.before_step(padded)
        if padded is None:
            self._settle()
            self._stage(rows, requests, slots, positions)
        else:
            empty = [0] * (padded - len(requests))
            # A replay changes tensors and runs no Python.
            attributes = dict(vars(self.sync))
            with self.sync.branch(padded):
                pass
            self._settle()
            rows = torch.cat((rows, torch.full((len(empty), WIDTH), -1.0)))
            self._stage(rows, requests + empty, slots + empty, positions + empty)
            vars(self.sync).update(attributes)
        draft_input = SimpleNamespace()
        self.sync.after_plain_step(
            None, torch.tensor(slots), rows[: len(requests)], torch.tensor(tokens), draft_input
        )
        assert pending_rows(draft_input).all()
        self.due = {
            slot: (float(token), state, float(position))
            for slot, token, state, position in zip(slots, tokens, hidden, positions, strict=True)
        }

    def _stage(self, hidden, requests, slots, positions):
        self.sync.stage(hidden, *map(torch.tensor, (requests, slots, positions)))

    def _settle(self):
        """By now all that was due is written, once, and nothing else but padding ever was."""
        self.written |= self.due
        self.due = {}
        found = {slot: entry for slot, entry in self.pool.entries.items() if slot}
        assert found == self.written
        assert all(count == 1 for slot, count in self.pool.writes.items() if slot)


batches = st.lists(st.integers(1, SLOTS - 1), min_size=1, max_size=10, unique=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(batches, st.booleans())), max_size=12))
def test_what_is_pending_is_written_once_by_the_next_step(sequence):
    """None is a step that is not plain; else the requests, and whether a graph may be replayed."""
    steps = Steps()
    for step in sequence:
        if step is None:
            steps.other()
        else:
            requests, graphs = step
            fitting = [size for size in SIZES if size >= len(requests)]
            steps.plain(requests, fitting[0] if graphs and fitting else None)
    steps.other()


def test_what_a_capture_staged_is_forgotten():
    steps = Steps()
    for size in reversed(SIZES):
        with steps.sync.branch(size):
            pass
        steps._stage(torch.ones(size, WIDTH), *[[1] * size] * 3)
    steps.pool.entries.clear()
    steps.pool.writes.clear()
    steps.sync.reset()

    steps.plain([3], padded=8)

    assert {slot for slot in steps.pool.entries if slot} == set()


@pytest.fixture
def steps():
    return Steps()


@pytest.fixture
def batch():
    return decode_batch(FakeRunner([]), [3, 7, 2], [5, 11, 8])


def test_resuming_proposes_for_pending_rows_and_keeps_the_others_proposals(steps, batch):
    steps.plain([3, 2], padded=None)
    steps.other()
    draft_input = batch.spec_info
    draft_input.topk_p = torch.tensor([[0.0], [0.5], [0.0]])
    draft_input.topk_index = torch.tensor([[0], [55], [0]])
    draft_input.hidden_states = torch.tensor([[0.0], [3.0], [0.0]]).expand(3, HIDDEN)

    assert steps.sync.before_speculative_step(batch) is True

    assert draft_input.topk_index.flatten().tolist() == [104, 55, 103]
    assert draft_input.topk_p.flatten().tolist() == [0.25, 0.5, 0.25]
    assert draft_input.hidden_states[:, 0].tolist() == [7.0, 3.0, 7.0]
    assert draft_input.bonus_tokens.tolist() == [103, 107, 102]


def test_resuming_asks_for_the_last_position_of_each_row(steps, batch):
    steps.plain([3, 2], padded=None)
    steps.other()
    batch.spec_info.topk_p = torch.tensor([[0.0], [0.5], [0.0]])

    steps.sync.before_speculative_step(batch)

    asked = steps.extend.asked
    assert asked["seq_lens"].tolist() == asked["seq_lens_cpu"].tolist() == [4, 10, 7]
    assert asked["next_token_ids"].tolist() == [103, 107, 102]
    assert asked["hidden_states"][[0, 2], 0].tolist() == [1003.0, 1002.0]
    in_sync = 0  # SGLang's padding slot: a row in sync writes nowhere
    assert asked["out_cache_loc"].tolist() == [3 * POSITIONS + 4, in_sync, 2 * POSITIONS + 7]


def test_rows_in_sync_need_no_draft_forward(steps, batch):
    steps.other()
    assert steps.sync.before_speculative_step(batch) is False
    assert steps.extend.asked is None

    steps.plain([3], padded=None)
    steps.other()
    assert steps.sync.before_speculative_step(batch) is True
    assert steps.sync.before_speculative_step(batch) is False, "once for an off period"


def test_lengths_on_the_gpu_only_are_enough(steps, batch):
    steps.plain([3, 7, 2], padded=None)
    steps.other()
    batch.seq_lens_cpu = None

    steps.sync.before_speculative_step(batch)

    assert steps.extend.asked["seq_lens_cpu"] is None


def prefill_batch(chunked=None, next_prompt_token=None):
    """Two requests: positions 4 to 6 of one, whose prefix is cached, and 0 to 1 of another."""
    requests = [SimpleNamespace(), SimpleNamespace()]
    return SimpleNamespace(
        reqs=requests,
        input_ids=torch.tensor([10, 11, 12, 20, 21]),
        extend_lens=[3, 2],
        prefix_lens=[4, 0],
        out_cache_loc=torch.tensor([30, 31, 32, 40, 41]),
        req_pool_indices=torch.tensor([5, 9]),
        chunked_req=None if chunked is None else requests[chunked],
        chunked_req_next_prompt_token=next_prompt_token,
    )


def test_a_prefill_while_off_writes_every_position_and_leaves_the_last_without_a_proposal(steps):
    hidden = torch.arange(5.0)[:, None].expand(5, WIDTH)
    draft_input = steps.sync.prefill(prefill_batch(), hidden, torch.tensor([13, 22]))

    assert steps.pool.entries == {
        30: (11, 0, 4),
        31: (12, 1, 5),
        32: (13, 2, 6),
        40: (21, 3, 0),
        41: (22, 4, 1),
    }
    assert pending_rows(draft_input).tolist() == [True, True]
    assert draft_input.bonus_tokens.tolist() == [13, 22]
    assert steps.sync._hidden[[5, 9], 0].tolist() == [2.0, 4.0]


def test_a_chunk_of_a_prompt_reads_the_prompts_next_token(steps):
    hidden = torch.zeros(5, WIDTH)
    steps.sync.prefill(prefill_batch(1, next_prompt_token=77), hidden, torch.tensor([13, 22]))

    assert steps.pool.entries[32][0] == 13
    assert steps.pool.entries[41][0] == 77
