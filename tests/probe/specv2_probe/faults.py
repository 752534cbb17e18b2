"""Faults that the tests must catch. Each breaks one promise of the worker or of the CPU engine.

``SPECV2_PROBE_FAULT`` is the name of a fault, in force from the start, or the path of a file that
holds the name of the one in force now, so that one server serves many controls. With CUDA graphs a
fault inside a plain step has to be in force when they are captured: name it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

InForce = Callable[[], bool]


def forget_the_pending_write(in_force: InForce) -> None:
    """Entries of the draft that plain steps and prefills left pending are never written."""
    from sglang_specv2.draft_sync.kv import KVSync

    original = KVSync._write

    def _write(self: Any, rows: Any, groups: Any) -> None:
        if not in_force():
            original(self, rows, groups)

    KVSync._write = _write


def wrong_slot(in_force: InForce) -> None:
    """The draft's entry goes one KV slot further."""
    _write_other(in_force, lambda rows: rows._replace(slots=rows.slots + 1))


def wrong_draft_position(in_force: InForce) -> None:
    """The draft's entry is rotated to the next position."""
    _write_other(in_force, lambda rows: rows._replace(positions=rows.positions + 1))


def tokens_of_the_row_before(in_force: InForce) -> None:
    """An entry that waited beside others is computed from the token of the one before."""
    _write_other(in_force, lambda rows: rows._replace(tokens=rows.tokens.roll(1, dims=0)))


def _write_other(in_force: InForce, change: Callable[[Any], Any]) -> None:
    from sglang_specv2.draft_sync.kv import KVSync

    original = KVSync._write

    def _write(self: Any, rows: Any, groups: Any) -> None:
        original(self, change(rows) if in_force() else rows, groups)

    KVSync._write = _write


def proposal_of_the_wrong_rows(in_force: InForce) -> None:
    """On resuming, rows in sync take the fresh proposal and pending rows keep their empty one."""
    from sglang_specv2.draft_sync import kv

    original = kv.pending_rows

    def pending_rows(draft_input: Any) -> torch.Tensor:
        return original(draft_input) ^ in_force()

    kv.pending_rows = pending_rows


def full_prefill_while_off(in_force: InForce) -> None:
    """No fault: the draft's own prefill while off, as with images, so that rows in sync meet
    pending ones when speculation resumes."""
    from sglang_specv2.draft_sync.kv import KVSync

    original = KVSync.prefill

    def prefill(self: Any, *args: Any) -> Any:
        return None if in_force() else original(self, *args)

    KVSync.prefill = prefill


def stride_of_a_verify(in_force: InForce) -> None:
    """A plain step claims the rows per request of a verify."""
    from sglang_specv2.plain_step import PlainStep

    original = PlainStep.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if in_force():
            result.speculative_num_draft_tokens = self._num_draft_tokens
        return result

    PlainStep.run = run


def length_not_advanced(in_force: InForce) -> None:
    """A plain step publishes the length before its token."""
    from sglang_specv2.plain_step import PlainStep

    original = PlainStep.run

    def run(self: Any, batch: Any, on_publish: Any, *args: Any, **kwargs: Any) -> Any:
        def publish(lengths: torch.Tensor) -> None:
            on_publish(lengths - int(in_force()))

        return original(self, batch, on_publish and publish, *args, **kwargs)

    PlainStep.run = run


def runner_not_swapped_back(in_force: InForce) -> None:
    """The target keeps the plain graphs and attention backend after a plain step (GPU)."""
    from sglang_specv2.plain_decode import PlainDecodeRuntime

    original = PlainDecodeRuntime.swapped_in

    @contextmanager
    def swapped_in(self: Any, *, graphs: bool) -> Any:
        runner = self._model_runner
        with original(self, graphs=graphs):
            yield
            plain = runner.decode_cuda_graph_runner, runner.attn_backend
        if in_force():
            runner.decode_cuda_graph_runner, runner.attn_backend = plain

    PlainDecodeRuntime.swapped_in = swapped_in


def verify_length(in_force: InForce) -> None:
    """The attention of a verify sees one position too few (CPU engine)."""
    from sglang_specv2.cpu.attention_backend import CpuAttentionBackend

    original = CpuAttentionBackend._lengths

    def _lengths(self: Any, forward_batch: Any) -> Any:
        query_lens, kv_lens = original(self, forward_batch)
        if in_force() and forward_batch.forward_mode.is_target_verify():
            kv_lens = kv_lens - 1
        return query_lens, kv_lens

    CpuAttentionBackend._lengths = _lengths


def chain_position(in_force: InForce) -> None:
    """The draft's chain rows are rotated to the next position."""
    from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

    original = EagleDraftWorker.draft_forward

    def draft_forward(self: Any, forward_batch: Any) -> Any:
        # Not in force, the batch keeps its own tensor: a CUDA graph is captured on it.
        if in_force():
            forward_batch.positions = forward_batch.positions + 1
        return original(self, forward_batch)

    EagleDraftWorker.draft_forward = draft_forward


def nan_in_the_draft(in_force: InForce) -> None:
    """No fault of ours: every logit of the draft's extend is NaN."""
    from sglang.srt.speculative.eagle_worker_v2 import EagleDraftWorker

    original = EagleDraftWorker._draft_extend_for_decode

    def _draft_extend_for_decode(self: Any, batch: Any, result: Any) -> None:
        hidden_states = result.logits_output.hidden_states
        if in_force():
            result.logits_output.hidden_states = torch.full_like(hidden_states, torch.nan)
        original(self, batch, result)

    EagleDraftWorker._draft_extend_for_decode = _draft_extend_for_decode


def poisoned_reserve(in_force: InForce) -> None:
    """No fault: before each step, the draft's entries that nobody may read yet are made NaN."""
    from sglang_specv2.worker import SpecV2Worker

    original = SpecV2Worker.forward_batch_generation

    def forward(worker: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if in_force() and batch.forward_mode.is_decode():
            pool = worker.draft_worker.draft_runner.token_to_kv_pool
            table = batch.req_to_token_pool.req_to_token
            for request, row, length in zip(
                batch.reqs, batch.req_pool_indices, batch.seq_lens, strict=True
            ):
                reserve = table[row, length : request.kv.kv_allocated_len].long()
                pool.get_key_buffer(0)[reserve] = torch.nan
                pool.get_value_buffer(0)[reserve] = torch.nan
        return original(worker, batch, *args, **kwargs)

    SpecV2Worker.forward_batch_generation = forward


def leaked_slot(in_force: InForce) -> None:
    """A KV slot is taken in a plain step and never given back."""
    from sglang_specv2.worker import SpecV2Worker

    original = SpecV2Worker._plain_step

    def _plain_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if in_force():
            self.token_to_kv_pool_allocator.alloc(self.page_size)
        return original(self, *args, **kwargs)

    SpecV2Worker._plain_step = _plain_step


def dwell_ignored(in_force: InForce) -> None:
    """The threshold policy switches as often as the batch crosses the threshold."""
    from sglang_specv2.policy.threshold import ThresholdPolicy

    original = ThresholdPolicy.decide

    def decide(self: Any, batch_size: int, context_tokens: int = 0) -> Any:
        min_dwell = self.min_dwell
        self.min_dwell = 0 if in_force() else min_dwell
        try:
            return original(self, batch_size)
        finally:
            self.min_dwell = min_dwell

    ThresholdPolicy.decide = decide


def sampled_greedily(in_force: InForce) -> None:
    """A plain step takes the likeliest token, whatever was asked for."""
    from sglang_specv2.plain_step import PlainStep

    original = PlainStep.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        sample = self._target.sample
        if in_force():
            self._target.sample = lambda logits, _: logits.next_token_logits.argmax(-1).int()
        try:
            return original(self, *args, **kwargs)
        finally:
            self._target.sample = sample

    PlainStep.run = run


def grammar_not_awaited(in_force: InForce) -> None:
    """A plain step samples before the grammars know the tokens of the step before."""
    from sglang_specv2.plain_step import PlainStep

    original = PlainStep.run

    def run(self: Any, batch: Any, on_publish: Any, grammar_barrier: Any, **kwargs: Any) -> Any:
        return original(self, batch, on_publish, None if in_force() else grammar_barrier, **kwargs)

    PlainStep.run = run


def counted_as_a_verify(in_force: InForce) -> None:
    """A plain step enters SGLang's statistics of verifies; the worker's own are spared."""
    from sglang_specv2 import accounting
    from sglang_specv2.worker import SpecV2Worker

    is_plain, observe = accounting.is_plain, SpecV2Worker.specv2_observe

    def specv2_observe(self: Any, *args: Any) -> None:
        if not is_plain(args[-1]):
            observe(self, *args)

    accounting.is_plain = lambda result: is_plain(result) and not in_force()
    SpecV2Worker.specv2_observe = specv2_observe


def logprobs_of_the_row_before(in_force: InForce) -> None:
    """A plain step gives each request the logprob of the one before it in the batch."""
    from sglang_specv2.plain_step import PlainStep

    original = PlainStep.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        logits = result.logits_output
        if in_force() and logits.next_token_logprobs is not None:
            logits.next_token_logprobs = logits.next_token_logprobs.roll(1, dims=0)
        return result

    PlainStep.run = run


def capture_fails(in_force: InForce) -> None:
    """Memory runs out in the middle of the capture of the plain decode graphs. A CPU, which has
    none, tries all the same."""
    from sglang_specv2.plain_decode import PlainDecodeGraphRunner, PlainDecodeRuntime

    capture_one_shape = PlainDecodeGraphRunner.capture_one_shape

    def capture(self: Any, size: int, forward: Any, *args: Any, **kwargs: Any) -> Any:
        @functools.wraps(forward)
        def run_out(*inputs: Any, **options: Any) -> Any:
            output = forward(*inputs, **options)
            half_way = size < max(self.capture_bs) and torch.cuda.is_current_stream_capturing()
            if in_force() and half_way:
                raise torch.OutOfMemoryError("planted: CUDA out of memory")
            return output

        return capture_one_shape(self, size, run_out, *args, **kwargs)

    PlainDecodeGraphRunner.capture_one_shape = capture
    runtime_init, graphs_init = PlainDecodeRuntime.__init__, PlainDecodeGraphRunner.__init__

    def init_runtime(self: Any, model_runner: Any, failures: Any) -> None:
        runtime_init(self, model_runner, failures)
        if in_force() and model_runner.device == "cpu":
            self._capture(failures)

    def init_graphs(self: Any, model_runner: Any, *args: Any) -> None:
        if model_runner.device == "cpu":
            raise torch.OutOfMemoryError("planted: CUDA out of memory")
        graphs_init(self, model_runner, *args)

    PlainDecodeRuntime.__init__ = init_runtime
    PlainDecodeGraphRunner.__init__ = init_graphs


FAULTS: dict[str, Callable[[InForce], None]] = {
    fault.__name__: fault
    for fault in (
        forget_the_pending_write,
        wrong_slot,
        wrong_draft_position,
        tokens_of_the_row_before,
        proposal_of_the_wrong_rows,
        full_prefill_while_off,
        stride_of_a_verify,
        length_not_advanced,
        runner_not_swapped_back,
        verify_length,
        chain_position,
        nan_in_the_draft,
        poisoned_reserve,
        leaked_slot,
        dwell_ignored,
        sampled_greedily,
        grammar_not_awaited,
        counted_as_a_verify,
        logprobs_of_the_row_before,
        capture_fails,
    )
}


def install(value: str) -> None:
    if value in FAULTS:
        FAULTS[value](lambda: True)
        return
    for name, plant in FAULTS.items():
        plant(functools.partial(_names, Path(value), name))


def _names(path: Path, fault: str) -> bool:
    return path.exists() and path.read_text() == fault
