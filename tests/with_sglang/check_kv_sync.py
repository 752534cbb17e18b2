"""The KV-only sync over any sequence of steps; K and V of the stand-in draft show their inputs."""

from types import SimpleNamespace

import pytest
import torch
from fakes import POSITIONS, SLOTS, FakeRunner, decode_batch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sglang_specv2.draft_sync import kv
from sglang_specv2.draft_sync.backlog import MOST_GROUPS
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
        self.entries, self.writes, self.scales = {}, [], set()

    def set_kv_buffer(self, layer, slots, keys, values, *scales):
        self.scales.add(scales)
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


def extend_batch(lengths, prefixes, tokens, slots):
    """What the sync reads of a batch in extend mode; new tokens by request slot."""
    return SimpleNamespace(
        reqs=[f"r{request}" for request in lengths],
        input_ids=torch.tensor(tokens),
        extend_lens=list(lengths.values()),
        prefix_lens=prefixes,
        out_cache_loc=torch.tensor(slots),
        req_pool_indices=torch.tensor(list(lengths)),
        chunked_req=None,
        chunked_req_next_prompt_token=None,
    )


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

    def read(self):
        """A speculative step, or the draft's own prefill: both read the draft's KV cache."""
        self.sync.catch_up()
        assert self.sync._backlog.rows == 0
        for request, slots in self.live.items():
            for slot in slots:
                assert self.pool.entries[slot] == self.due[slot]
            if slots:
                assert self.sync._hidden[request, 0] == self.hidden[request]

    def join(self, request):
        """By the draft's own prefill, of no token."""
        self.read()
        self.live.setdefault(request, [])

    def leave(self, request):
        self.free_slots += self.live.pop(request)

    def prefill(self, lengths):
        """A prefill of other requests while off.

        Args:
            lengths: prompt tokens by request slot.
        """
        self.clock += 1
        tokens, hidden, slots, last = [], [], [], []
        for request, length in lengths.items():
            prompt = [100 * self.clock + 10 * request + i for i in range(length + 1)]
            states = [1000.0 * self.clock + token for token in prompt[:-1]]
            own = self.live[request] = [self.free_slots.pop() for _ in range(length)]
            for position, slot in enumerate(own):
                self.due[slot] = float(prompt[position + 1]), states[position], float(position)
            self.hidden[request] = states[-1]
            tokens += prompt[:-1]
            hidden += states
            slots += own
            last.append(prompt[-1])
        batch = extend_batch(lengths, [0] * len(lengths), tokens, slots)
        states = torch.tensor(hidden)[:, None].expand(-1, WIDTH)
        draft_input = self.sync.prefill(batch, states, torch.tensor(last, dtype=torch.int32))
        assert pending_rows(draft_input).all()

    def plain(self):
        """A plain step of all live requests."""
        if not 0 < len(self.live) <= len(self.free_slots):
            return
        self.clock += 1
        requests = list(self.live)
        batch = SimpleNamespace(
            reqs=[f"r{request}" for request in requests],
            req_pool_indices=torch.tensor(requests),
            seq_lens=torch.tensor([len(self.live[request]) for request in requests]),
        )
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


requests = st.integers(1, 4)  # Few, so that slots often change hands.
steps_of_all_kinds = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 5)),
    st.tuples(st.just("join"), requests),
    st.tuples(st.just("leave"), requests),
    st.tuples(st.just("prefill"), st.dictionaries(requests, st.integers(1, 4), min_size=1)),
    st.just(("read", None)),
)


@example(512, [("join", 3), ("plain", 1), ("prefill", {4: 2}), ("leave", 4), ("plain", 1)])
@settings(max_examples=500, deadline=None)
@given(st.sampled_from([0, 1, 3, 8, 30, 512]), st.lists(steps_of_all_kinds, max_size=20))
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
        elif kind == "prefill":
            new = {r: n for r, n in value.items() if r not in steps.live}
            if new and sum(new.values()) <= len(steps.free_slots):
                steps.prefill(new)
        elif kind == "read":
            steps.read()
    steps.read()


def of_requests(*numbers, backlog_rows=kv.BACKLOG_ROWS):
    steps = Steps(backlog_rows)
    for number in numbers:
        steps.join(number)
    return steps


@pytest.mark.parametrize("scales", [(), (0.5, 2.0)])
def test_entries_are_scaled_as_the_drafts_own(scales):
    """With a checkpoint's scales for an FP8 KV cache."""
    steps = Steps()
    layer = steps.sync._projection.attention.attn
    layer.k_scale, layer.v_scale = scales or (None, None)
    steps.join(1)
    steps.plain()
    steps.read()
    assert steps.pool.scales == {scales}


def test_plain_steps_of_the_same_requests_are_written_together():
    steps = of_requests(3, 5)
    for _ in range(4):
        steps.plain()

    assert steps.pool.writes == []
    steps.read()
    assert steps.pool.writes == [8]


@pytest.mark.parametrize(("backlog_rows", "written"), [(9, [6]), (4, [2, 2, 2]), (3, [2, 2, 2])])
def test_half_a_backlog_is_written_after_a_step_of_the_same_requests(backlog_rows, written):
    steps = of_requests(3, 5, backlog_rows=backlog_rows)
    for _ in range(4):
        steps.plain()

    assert steps.pool.writes == written


def test_of_other_requests_the_first_step_writes_nothing_if_there_is_room():
    steps = of_requests(3, 5, backlog_rows=12)
    for _ in range(3):
        steps.plain()
    steps.prefill({7: 2})
    steps.plain()
    assert steps.pool.writes == []

    steps.plain()
    assert steps.pool.writes == [6, 2, 3]


@pytest.mark.parametrize(("backlog_rows", "written"), [(7, [4]), (8, [])])
def test_a_full_backlog_is_written_whoever_comes(backlog_rows, written):
    steps = of_requests(3, 5, backlog_rows=backlog_rows)
    for _ in range(2):
        steps.plain()
    steps.prefill({7: 4})

    assert steps.pool.writes == written
    steps.read()
    assert steps.pool.writes == [4, 4]


def test_a_request_that_leaves_has_its_entries_written_before_those_of_who_has_its_slots_next():
    steps = of_requests(3, 5)
    steps.plain()
    (slot,) = steps.live[5]
    steps.leave(5)
    steps.prefill({5: 1})
    assert steps.live[5] == [slot]
    assert steps.pool.writes == []

    steps.read()
    assert steps.pool.writes == [2, 1]


def test_of_requests_that_come_and_go_so_many_wait_and_no_more():
    steps = of_requests(3)
    for request in [5, 7] * MOST_GROUPS:
        steps.prefill({request: 1})
        steps.plain()
        steps.leave(request)

    assert 0 < len(steps.pool.writes) <= 4 * MOST_GROUPS
    assert len(steps.sync._backlog.groups()) <= MOST_GROUPS + 1
    steps.read()


@pytest.mark.parametrize("backlog_rows", [0, 1])
def test_a_step_that_does_not_fit_is_written_at_once(backlog_rows):
    steps = of_requests(3, 5, backlog_rows=backlog_rows)
    steps.plain()
    assert steps.pool.writes == [2]

    steps.prefill({7: 3})
    assert steps.pool.writes == [2, 3]
    steps.read()


@pytest.mark.parametrize("copied", [True, False])
def test_nothing_waits_where_prefixes_are_copied_to_the_host(copied):
    server_args = SimpleNamespace(enable_hierarchical_cache=copied)

    assert (backlog_rows(server_args) == 0) is copied


def test_what_a_calibration_left_is_forgotten():
    steps = of_requests(3)
    steps.plain()
    steps.sync.reset()
    steps.live.clear()
    steps.read()

    assert steps.pool.writes == []


@pytest.fixture
def steps():
    return of_requests(3, 2)


@pytest.fixture
def batch():
    return decode_batch(FakeRunner([]), [3, 7, 2], [5, 11, 8])


def test_resuming_proposes_for_pending_rows_and_keeps_the_others_proposals(steps, batch):
    steps.plain()
    steps.read()
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
    steps.read()
    batch.spec_info.topk_p = torch.tensor([[0.0], [0.5], [0.0]])

    steps.sync.resume(batch)

    asked = steps.extend.asked
    assert asked["seq_lens"].tolist() == asked["seq_lens_cpu"].tolist() == [4, 10, 7]
    assert asked["next_token_ids"].tolist() == [103, 107, 102]
    assert asked["hidden_states"][[0, 2], 0].tolist() == [1003.0, 1002.0]
    in_sync = 0  # SGLang's padding slot: a row in sync writes nowhere
    assert asked["out_cache_loc"].tolist() == [3 * POSITIONS + 4, in_sync, 2 * POSITIONS + 7]


def test_rows_in_sync_need_no_draft_forward(steps, batch):
    steps.read()
    assert steps.sync.must_resume is False

    steps.plain()
    steps.read()
    assert steps.sync.must_resume is True
    steps.sync.resume(batch)
    assert steps.sync.must_resume is False, "once for an off period"


def test_lengths_on_the_gpu_only_are_enough(steps, batch):
    steps.plain()
    steps.read()
    batch.seq_lens_cpu = None

    steps.sync.resume(batch)

    assert steps.extend.asked["seq_lens_cpu"] is None


def prefill_batch():
    """Two requests: positions 4 to 6 of one, whose prefix is cached, and 0 to 1 of another."""
    return extend_batch({5: 3, 9: 2}, [4, 0], [10, 11, 12, 20, 21], [30, 31, 32, 40, 41])


@pytest.mark.parametrize("backlog_rows", [0, kv.BACKLOG_ROWS])
def test_a_prefill_while_off_has_every_position_and_its_last_is_without_a_proposal(backlog_rows):
    steps = of_requests(backlog_rows=backlog_rows)
    hidden = torch.arange(5.0)[:, None].expand(5, WIDTH)
    draft_input = steps.sync.prefill(prefill_batch(), hidden, torch.tensor([13, 22]))
    steps.sync.catch_up()

    assert steps.pool.entries == {
        30: (11, 0, 4),
        31: (12, 1, 5),
        32: (13, 2, 6),
        40: (21, 3, 0),
        41: (22, 4, 1),
    }
    assert pending_rows(draft_input).tolist() == [True, True]
    assert steps.sync.must_resume
    assert draft_input.bonus_tokens.tolist() == [13, 22]
    assert steps.sync._hidden[[5, 9], 0].tolist() == [2.0, 4.0]


def test_a_chunk_of_a_prompt_reads_the_prompts_next_token(steps):
    hidden = torch.zeros(5, WIDTH)
    batch = prefill_batch()
    batch.chunked_req, batch.chunked_req_next_prompt_token = batch.reqs[1], 77
    steps.sync.prefill(batch, hidden, torch.tensor([13, 22]))
    steps.sync.catch_up()

    assert steps.pool.entries[32][0] == 13
    assert steps.pool.entries[41][0] == 77
