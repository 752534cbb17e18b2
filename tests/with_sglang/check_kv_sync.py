"""The KV-only sync over any sequence of steps; K and V of the stand-in draft show their inputs."""

from types import SimpleNamespace

import pytest
import torch
from fakes import POSITIONS, SLOTS, FakeRunner, decode_batch
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_specv2.draft_sync import kv
from sglang_specv2.draft_sync.build import backlog_rows
from sglang_specv2.draft_sync.kv import KVSync
from sglang_specv2.draft_sync.proposals import EmptyProposals, pending_rows

WIDTH, HIDDEN = 4, 6


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
    """What lies in each KV slot, and how many rows were written at a time."""

    def __init__(self):
        self.entries, self.writes = {}, []

    def set_kv_buffer(self, layer, slots, keys, values):
        assert len(set(slots.tolist())) == len(slots), "of two writes at once, any may be the last"
        self.writes.append(len(slots))
        for slot, key, value in zip(slots.tolist(), keys[:, 0], values[:, 0], strict=True):
            assert torch.equal(value, -key)
            self.entries[slot] = tuple(key.tolist())


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
    """Runs steps through a sync as the worker does, and knows what has to be written.

    KV slots that are given back are handed out again at once, the last one first.
    """

    def __init__(self, backlog_rows=kv.BACKLOG_ROWS):
        self.pool, self.extend = Pool(), Extend()
        draft_runner = SimpleNamespace(
            model=Draft(),
            device="cpu",
            model_config=SimpleNamespace(dtype=torch.float32),
            token_to_kv_pool=self.pool,
        )
        proposals = EmptyProposals(SLOTS, 1, HIDDEN, torch.float32, None, "cpu")
        self.sync = KVSync(draft_runner, WIDTH, SLOTS, self.extend, proposals, backlog_rows)
        self.free_slots = list(range(SLOTS * POSITIONS, 0, -1))
        self.live, self.due, self.hidden = {}, {}, {}
        self.clock = 0

    def other(self):
        """A prefill or a speculative step."""
        self.sync.before_step(None)
        assert self.sync.pending_steps == 0
        for request, slots in self.live.items():
            for slot in slots:
                assert self.pool.entries[slot] == self.due[slot]
            if slots:
                assert self.sync._hidden[request, 0] == self.hidden[request]

    def join(self, request):
        self.other()
        self.live.setdefault(request, [])

    def leave(self, request):
        self.free_slots += self.live.pop(request)

    def plain(self):
        """A plain step of all live requests."""
        if not self.live:
            return
        self.clock += 1
        requests = list(self.live)
        batch = SimpleNamespace(
            reqs=[f"r{request}" for request in requests],
            req_pool_indices=torch.tensor(requests),
            seq_lens=torch.tensor([len(self.live[request]) for request in requests]),
        )
        self.sync.before_step(batch.reqs)
        hidden = [1000.0 * self.clock + request for request in requests]
        tokens = [100 * self.clock + request for request in requests]
        for request, token, state in zip(requests, tokens, hidden, strict=True):
            slots = self.live[request]
            slots.append(self.free_slots.pop())
            self.due[slots[-1]] = float(token), state, float(len(slots) - 1)
            self.hidden[request] = state
        draft_input = SimpleNamespace()
        self.sync.after_plain_step(
            batch,
            torch.tensor([self.live[request][-1] for request in requests]),
            torch.tensor([[h] * WIDTH for h in hidden]),
            torch.tensor(tokens, dtype=torch.int32),
            draft_input,
        )
        assert pending_rows(draft_input).all()


requests = st.integers(1, SLOTS - 1)
steps_of_all_kinds = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 5)),
    st.tuples(st.just("join"), requests),
    st.tuples(st.just("leave"), requests),
    st.just(("other", None)),
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from([0, 1, 3, 8, 512]), st.lists(steps_of_all_kinds, max_size=20))
def test_every_entry_is_there_before_anyone_reads_it(backlog_rows, sequence):
    steps = Steps(backlog_rows)
    for kind, value in sequence:
        if kind == "plain":
            for _ in range(value):
                steps.plain()
        elif kind == "join":
            steps.join(value)
        elif kind == "leave" and value in steps.live:
            steps.leave(value)
        elif kind == "other":
            steps.other()
    steps.other()


def of_requests(*numbers, backlog_rows=kv.BACKLOG_ROWS):
    steps = Steps(backlog_rows)
    for number in numbers:
        steps.join(number)
    return steps


def test_plain_steps_of_the_same_requests_are_written_together():
    steps = of_requests(3, 5)
    for _ in range(4):
        steps.plain()

    assert steps.sync.pending_steps == 4
    assert steps.pool.writes == []
    steps.other()
    assert steps.pool.writes == [8]


def test_a_full_backlog_is_written_before_the_next_step():
    steps = of_requests(3, 5, backlog_rows=7)
    for _ in range(4):
        steps.plain()

    assert steps.pool.writes == [6]
    assert steps.sync.pending_steps == 1


def test_a_request_that_leaves_has_its_entries_written_before_its_slots_are_used_again():
    steps = of_requests(3, 5)
    steps.plain()
    steps.leave(5)
    steps.plain()

    assert steps.pool.writes == [2]
    steps.other()


@pytest.mark.parametrize("backlog_rows", [0, 1])
def test_a_step_that_does_not_fit_is_written_at_once(backlog_rows):
    steps = of_requests(3, 5, backlog_rows=backlog_rows)
    steps.plain()

    assert steps.pool.writes == [2]
    assert steps.sync.pending_steps == 0
    steps.other()


@pytest.mark.parametrize("copied", [True, False])
def test_nothing_waits_where_prefixes_are_copied_to_the_host(copied):
    server_args = SimpleNamespace(enable_hierarchical_cache=copied)

    assert (backlog_rows(server_args) == 0) is copied


def test_what_a_calibration_left_is_forgotten():
    steps = of_requests(3)
    steps.plain()
    steps.sync.reset()
    steps.live.clear()
    steps.other()

    assert steps.pool.writes == []


@pytest.fixture
def steps():
    return of_requests(3, 2)


@pytest.fixture
def batch():
    return decode_batch(FakeRunner([]), [3, 7, 2], [5, 11, 8])


def test_resuming_proposes_for_pending_rows_and_keeps_the_others_proposals(steps, batch):
    steps.plain()
    steps.other()
    draft_input = batch.spec_info
    draft_input.topk_p = torch.tensor([[0.0], [0.5], [0.0]])
    draft_input.topk_index = torch.tensor([[0], [55], [0]])
    draft_input.hidden_states = torch.tensor([[0.0], [3.0], [0.0]]).expand(3, HIDDEN)

    steps.sync.resume(batch)

    assert draft_input.topk_index.flatten().tolist() == [104, 55, 103]
    assert draft_input.topk_p.flatten().tolist() == [0.25, 0.5, 0.25]
    assert draft_input.hidden_states[:, 0].tolist() == [7.0, 3.0, 7.0]
    assert draft_input.bonus_tokens.tolist() == [103, 107, 102]


def test_resuming_asks_for_the_last_position_of_each_row(steps, batch):
    steps.plain()
    steps.other()
    batch.spec_info.topk_p = torch.tensor([[0.0], [0.5], [0.0]])

    steps.sync.resume(batch)

    asked = steps.extend.asked
    assert asked["seq_lens"].tolist() == asked["seq_lens_cpu"].tolist() == [4, 10, 7]
    assert asked["next_token_ids"].tolist() == [103, 107, 102]
    assert asked["hidden_states"][[0, 2], 0].tolist() == [1003.0, 1002.0]
    in_sync = 0  # SGLang's padding slot: a row in sync writes nowhere
    assert asked["out_cache_loc"].tolist() == [3 * POSITIONS + 4, in_sync, 2 * POSITIONS + 7]


def test_rows_in_sync_need_no_draft_forward(steps, batch):
    steps.other()
    assert steps.sync.must_resume is False

    steps.plain()
    steps.other()
    assert steps.sync.must_resume is True
    steps.sync.resume(batch)
    assert steps.sync.must_resume is False, "once for an off period"


def test_lengths_on_the_gpu_only_are_enough(steps, batch):
    steps.plain()
    steps.other()
    batch.seq_lens_cpu = None

    steps.sync.resume(batch)

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
