"""Graphs beside the speculative ones: room for them, and what is left where there is none."""

import logging
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from sglang.srt.speculative import eagle_worker_v2
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from sglang_specv2 import capture_room, plain_decode
from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.draft_sync.extend import OneTokenExtend
from sglang_specv2.errors import CaptureError
from sglang_specv2.plain_decode import PlainDecodeRuntime
from sglang_specv2.step_tiers import StepTiers


@pytest.fixture
def runner(runner, monkeypatch):
    """A target on a GPU whose memory is what a test says."""
    runner.device, runner.gpu_id, runner.free_gb = "cuda", 0, 0.31
    runner.tp_group = SimpleNamespace(world_size=1, cpu_group=None)
    runner.spec_algorithm, runner.init_new_workspace = "EAGLE3", False
    monkeypatch.setattr(
        capture_room, "get_available_gpu_memory", lambda *args, **kwargs: runner.free_gb
    )
    monkeypatch.setattr(plain_decode, "check_cuda_graph_backend", lambda *args: False)
    return runner


class Worker:
    """An EAGLE worker that builds its tiers by saying so."""

    speculative_num_steps, speculative_num_draft_tokens, topk = 2, 3, 1
    apply_runtime_state = EAGLEWorkerV2.apply_runtime_state

    def __init__(self, runner):
        self.built = []
        draft_runner = SimpleNamespace(
            server_args=SimpleNamespace(speculative_num_draft_tokens=3), attn_backend=None
        )
        self.target_worker = SimpleNamespace(model_runner=runner)
        self.draft_worker = SimpleNamespace(
            draft_runner=draft_runner,
            draft_attn_backend=None,
            cuda_graph_runner=None,
            draft_extend_attn_backend=None,
            cuda_graph_runner_for_draft_extend="the graphs of a verify's rows",
            init_attention_backend=lambda: None,
            _capture_cuda_graphs=lambda: self.built.append("one token"),
        )

    @contextmanager
    def _override_worker_state(self, *args):
        yield

    def build_adaptive_runtime_state(self, steps, draft_tokens):
        self.built.append((steps, draft_tokens))
        return SimpleNamespace(speculative_num_steps=steps)


def test_plain_graphs_are_not_tried_without_room(runner):
    with pytest.raises(CaptureError, match=r"MemoryError: 0\.31 GB free where at least 0\.5 GB"):
        PlainDecodeRuntime(runner, CaptureFailures())
    failures = CaptureFailures("eager")
    assert not PlainDecodeRuntime(runner, failures).sizes
    assert "0.31 GB free" in failures.reasons[0]


def test_a_draft_extend_of_one_token_is_not_tried_without_room(runner):
    worker = Worker(runner)
    with pytest.raises(CaptureError, match=r"0\.31 GB free"):
        OneTokenExtend(worker, CaptureFailures())
    extend = OneTokenExtend(worker, CaptureFailures("eager"))
    assert extend._state.graph_runner is None, "those of other rows are not to be replayed"
    assert worker.built == []


def test_a_tier_is_not_tried_without_room_and_left_out_where_asked_for(runner, caplog):
    worker = Worker(runner)
    with pytest.raises(CaptureError, match=r"with 1 draft steps failed: .* 0\.31 GB free"):
        StepTiers(worker, (0, 1, 2), CaptureFailures())
    failures = CaptureFailures("eager")
    assert StepTiers(worker, (0, 1, 2), failures).steps == (2,)
    assert worker.built == []
    assert "policy auto chooses among the others" in caplog.text
    assert "0.31 GB free" in failures.reasons[0]

    runner.free_gb = 40.0
    assert StepTiers(worker, (0, 1, 2), CaptureFailures()).steps == (1, 2)
    assert worker.built == [(1, 2)]


def test_a_cpu_has_room_for_nothing_to_capture(runner):
    runner.device = "cpu"
    capture_room.require_room(runner)


def test_swaps_of_tiers_stay_out_of_the_log(runner, caplog):
    runner.free_gb = 40.0
    StepTiers(Worker(runner), (0, 1, 2), CaptureFailures())
    with caplog.at_level(logging.INFO):
        eagle_worker_v2.logger.info("Switch adaptive runtime state: steps 2 -> 1")
        eagle_worker_v2.logger.info("anything else")
    assert [record.getMessage() for record in caplog.records] == ["anything else"]
