"""One plain step between a scheduler's batch and a target that computes nothing."""

from contextlib import contextmanager
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
from fakes import SLOTS, decode_batch
from sglang.srt.model_executor.forward_batch_info import CaptureHiddenMode, ForwardMode

from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.errors import BatchShapeError
from sglang_specv2.plain_decode import PlainDecodeRuntime
from sglang_specv2.plain_step import PlainStep, PlainStepResult

DRAFT_TOKENS = 16
REQUESTS, LENGTHS = [3, 7, 2], [5, 11, 8]


@pytest.fixture
def step(runner, sync):
    runtime = PlainDecodeRuntime(runner, CaptureFailures())
    return PlainStep(SimpleNamespace(model_runner=runner), runtime, sync, DRAFT_TOKENS, SLOTS)


@pytest.fixture
def batch(runner):
    return decode_batch(runner, REQUESTS, LENGTHS)


def values(batch):
    return {field.name: getattr(batch, field.name) for field in fields(batch)}


def run(step, batch, calls=None, grammar_barrier=None):
    published = []

    def publish(lengths):
        if calls is not None:
            calls.append("publish")
        published.append(lengths)

    result = step.run(batch, publish, grammar_barrier, padded_rows=None)
    return result, published


def test_the_target_sees_one_token_for_each_request_at_its_length(step, batch, runner):
    run(step, batch)

    ((forward, _, _),) = runner.seen
    assert forward.forward_mode is ForwardMode.DECODE
    assert forward.spec_info is None
    assert forward.capture_hidden_mode is CaptureHiddenMode.FULL
    assert forward.input_ids.tolist() == [103, 107, 102]
    assert forward.input_ids.dtype == torch.int64
    assert forward.positions.tolist() == LENGTHS
    assert forward.seq_lens.tolist() == [length + 1 for length in LENGTHS]
    assert forward.seq_lens_cpu.tolist() == [length + 1 for length in LENGTHS]
    assert forward.seq_lens_sum == sum(LENGTHS) + 3
    table = runner.req_to_token_pool.req_to_token
    slots = [table[r, n].item() for r, n in zip(REQUESTS, LENGTHS, strict=True)]
    assert forward.out_cache_loc.tolist() == slots


def test_the_result_is_a_run_of_one_token(step, batch, sync):
    result, (published,) = run(step, batch)

    assert type(result) is PlainStepResult
    assert result.next_token_ids.tolist() == [104, 108, 103]
    assert result.next_token_ids.dtype == torch.int32
    assert result.accept_lens.tolist() == [1, 1, 1]
    assert result.accept_lens.dtype == torch.int32
    assert result.speculative_num_draft_tokens == 1
    assert result.new_seq_lens.tolist() == published.tolist() == [6, 12, 9]
    assert result.next_draft_input.bonus_tokens.tolist() == [104, 108, 103]
    assert result.extra_keep_alive_refs


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_changed(step, batch, runner, fails):
    runner.fails = fails
    before = values(batch)
    try:
        run(step, batch)
    except RuntimeError:
        assert fails

    after = values(batch)
    assert all(after[name] is value for name, value in before.items())
    assert batch.seq_lens.tolist() == LENGTHS
    assert runner.decode_cuda_graph_runner == "the verify's graphs"
    assert runner.attn_backend == "the verify's attention"


def test_the_eager_forward_runs_without_the_verifys_graphs(step, batch, runner):
    run(step, batch)

    ((_, graphs, attention),) = runner.seen
    assert graphs is None
    assert attention == "the verify's attention", "the CPU has one backend for both"


def test_lengths_are_published_before_the_forward_and_the_sync_comes_last(step, batch, calls):
    run(step, batch, calls)

    assert calls == ["publish", "forward", "sample", "after"]


def test_a_grammar_is_brought_up_to_date_before_sampling(step, batch, calls):
    batch.has_grammar = True
    batch.sampling_info = SimpleNamespace(grammars=None)
    for request in batch.reqs:
        request.grammar = "a grammar"

    run(step, batch, calls, grammar_barrier=lambda: calls.append("barrier"))

    assert calls.index("forward") < calls.index("barrier") < calls.index("sample")


def test_without_a_grammar_nothing_waits(step, batch, calls):
    run(step, batch, calls, grammar_barrier=lambda: calls.append("barrier"))

    assert "barrier" not in calls


def test_the_sync_is_given_what_it_needs(step, batch, runner, sync):
    run(step, batch)

    seen_batch, slots, hidden, next_tokens, draft_input = sync.after
    assert seen_batch is batch
    assert batch.seq_lens.tolist() == LENGTHS, "the positions just processed"
    assert slots.tolist() == runner.seen[0][0].out_cache_loc.tolist()
    assert hidden[:, 0].tolist() == [103, 107, 102]
    assert next_tokens.tolist() == [104, 108, 103]
    assert draft_input.bonus_tokens.tolist() == [104, 108, 103]


@pytest.mark.parametrize("reads_last", [False, True])
def test_who_reads_the_shared_buffers_last_is_passed_on(step, batch, sync, reads_last):
    sync.reads_last = reads_last

    assert run(step, batch)[0].drives_draft_last is reads_last


def test_logprobs_come_as_one_list_for_each_request(step, batch, runner):
    runner.logprobs = True

    result, _ = run(step, batch)

    assert result.logits_output.next_token_logprobs.tolist() == [[0.0], [1.0], [2.0]]


def test_lengths_that_are_on_the_gpu_only_stay_there(step, batch, runner):
    batch.seq_lens_cpu = batch.seq_lens_sum = None

    run(step, batch)

    ((forward, _, _),) = runner.seen
    assert forward.seq_lens_cpu is None
    assert forward.seq_lens.tolist() == [6, 12, 9]


def test_without_overlap_nothing_is_published(step, batch):
    result = step.run(batch, None, None, padded_rows=None)

    assert result.new_seq_lens.tolist() == [6, 12, 9]


@pytest.mark.parametrize("field", ["input_ids", "bonus_tokens"])
def test_a_batch_inflated_for_a_verify_is_named(step, batch, runner, field):
    inflated = torch.zeros(3 * DRAFT_TOKENS, dtype=torch.int64)
    if field == "input_ids":
        batch.input_ids = inflated
    else:
        batch.spec_info.bonus_tokens = inflated

    with pytest.raises(BatchShapeError, match=f"{field} has 48 rows = 3 requests × 16 draft"):
        run(step, batch)
    assert runner.seen == []


def test_a_verify_input_in_place_of_a_draft_input_is_named(step, batch):
    batch.spec_info = SimpleNamespace(draft_token=torch.zeros(48, dtype=torch.int64))

    with pytest.raises(BatchShapeError, match="48 rows = 3 requests × 16 draft tokens"):
        run(step, batch)


class Graphs:
    """The graph runner of the plain family, which may refuse a batch."""

    def __init__(self, replays):
        self.replays = replays

    def can_run_graph(self, forward_batch):
        return self.replays


@pytest.mark.parametrize("replays", [True, False])
def test_a_graph_is_replayed_unless_sglang_refuses_the_batch(step, batch, runner, replays):
    step._runtime._graph_runner = graphs = Graphs(replays)

    step.run(batch, None, None, padded_rows=4)

    ((_, used, _),) = runner.seen
    assert used is (graphs if replays else None)


def test_the_swap_is_undone_when_the_forward_raises(runner, sync):
    runtime = PlainDecodeRuntime(runner, CaptureFailures())
    runtime.attn_backend, runtime._graph_runner = "plain attention", "plain graphs"

    @contextmanager
    def failing():
        with runtime.swapped_in(graphs=True):
            yield runner.decode_cuda_graph_runner, runner.attn_backend
            raise RuntimeError("no memory")

    with pytest.raises(RuntimeError, match="no memory"), failing() as swapped:
        assert swapped == ("plain graphs", "plain attention")
    assert runner.decode_cuda_graph_runner == "the verify's graphs"
    assert runner.attn_backend == "the verify's attention"
