"""What the worker does around SGLang's EAGLEWorkerV2, which is replaced by a stand-in."""

import copy
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from fakes import decode_batch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2

from cuda_graphs import CaptureSizes
from sglang_specv2 import opt_out
from sglang_specv2 import worker as worker_module
from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.capture_width import rows_per_request
from sglang_specv2.config import SpecV2Config
from sglang_specv2.draft_sync.proposals import NAN_CHECK_STEPS, NanCheck
from sglang_specv2.errors import CaptureError, ConfigError
from sglang_specv2.opt_out import opted_out
from sglang_specv2.plain_decode import PlainDecodeRuntime, _target_without_speculation
from sglang_specv2.policy import (
    Acceptance,
    AutoPolicy,
    CostModel,
    Decision,
    LiveCost,
    Mode,
    Point,
)
from sglang_specv2.step_learning import EVERY_STEPS, StepLearning
from sglang_specv2.step_log import StepLog
from sglang_specv2.worker import SpecV2Worker


class Scripted:
    """A policy that says what it is told, and notes what it is asked."""

    name = "scripted"

    def __init__(self, *modes):
        self.modes, self.asked = list(modes), []

    def decide(self, batch_size, context_tokens=0):
        self.asked.append(batch_size)
        return Decision(self.modes.pop(0), switched=False, reason="as scripted")


class FakePlainStep:
    def __init__(self, calls):
        self.calls, self.drives_draft_last = calls, False

    def run(self, batch, on_publish, grammar_barrier, *, padded_rows):
        self.calls.append(f"plain of {padded_rows}")
        return SimpleNamespace(drives_draft_last=self.drives_draft_last)


@pytest.fixture
def worker(runner, sync, calls, monkeypatch):
    def upstream(self, batch, on_publish=None, grammar_barrier=None):
        calls.append("upstream")
        if on_publish is not None:
            on_publish(batch.seq_lens)
        batch.spec_info = "the verify's input"
        return SimpleNamespace(name="upstream's result")

    monkeypatch.setattr(EAGLEWorkerV2, "forward_batch_generation", upstream)
    worker = SpecV2Worker.__new__(SpecV2Worker)
    draft_runner = SimpleNamespace(
        tp_group=None, war_fastpath_read_done_event="stale", attn_backend=2
    )
    worker._draft_worker = SimpleNamespace(
        draft_runner=draft_runner,
        draft_tp_context=lambda group: nullcontext(),
        draft_attn_backend=1,
        draft_extend_attn_backend=None,
    )
    worker._target_worker = SimpleNamespace(model_runner=runner)
    worker.config = SpecV2Config()
    worker.control = SimpleNamespace(policy=Scripted(), as_dict=dict)
    worker.topk = 1
    worker.speculative_num_steps = 2
    worker.draft_sync = sync
    worker.step_log = StepLog(Mode.SPECULATIVE, Acceptance(2), 2)
    worker._learning = StepLearning(worker._agree)
    worker._nan_check = NanCheck()
    worker.tiers = SimpleNamespace(
        use=lambda steps: calls.append(f"{steps or 'the usual'} draft steps"),
        attn_backends=("a tier's",),
    )
    worker._capture_failures = CaptureFailures()
    worker._calibration_failure, worker._auto_asked_for = None, False
    worker._draft_reads_last = True
    worker.plain_runtime = PlainDecodeRuntime(runner, CaptureFailures())
    worker._plain = FakePlainStep(calls)
    worker.selector = worker._build_selector(CaptureSizes(()))
    worker._draft_prefill = lambda *args: calls.append("draft's own prefill")
    return worker


@pytest.fixture
def batch(runner):
    return decode_batch(runner, [3, 7], [5, 11])


def verified(accepted):
    return SimpleNamespace(num_correct_drafts_per_req_cpu=accepted, speculative_num_draft_tokens=3)


def decode(worker, batch, *modes):
    """Steps of one batch; the scheduler gives each of them a batch as it was."""
    worker.control.policy = Scripted(*modes)
    return [worker.forward_batch_generation(copy.copy(batch)) for _ in modes]


def test_the_policy_is_asked_once_a_decode_step_and_never_for_a_prefill(worker, batch):
    decode(worker, batch, Mode.PLAIN, Mode.SPECULATIVE)
    assert worker.control.policy.asked == [2, 2]

    batch.forward_mode = ForwardMode.EXTEND
    worker.forward_batch_generation(batch)
    assert worker.control.policy.asked == [2, 2]


@pytest.mark.parametrize(("mode", "first"), [("EXTEND", []), ("IDLE", ["catch up"])])
def test_a_prefill_is_upstreams_and_so_is_an_idle_step(worker, batch, calls, mode, first):
    batch.forward_mode = ForwardMode[mode]

    assert worker.forward_batch_generation(batch).name == "upstream's result"

    assert calls == [*first, "upstream"]


def test_a_prefill_tells_its_lengths_before_the_forward_and_once(worker, batch, calls):
    batch.forward_mode = ForwardMode.EXTEND

    worker.forward_batch_generation(batch, lambda lengths: calls.append(lengths.tolist()))

    assert calls == [batch.seq_lens.tolist(), "upstream"]


def test_a_speculative_step_resumes_and_is_upstreams(worker, batch, calls):
    (result,) = decode(worker, batch, Mode.SPECULATIVE)

    assert result.name == "upstream's result"

    assert calls == ["catch up", "resume", "the usual draft steps", "upstream"]
    assert worker.step_log.counters.resumes == 1
    assert worker.draft_worker.draft_runner.war_fastpath_read_done_event is None


def test_a_plain_step_is_not_upstreams(worker, batch, calls):
    decode(worker, batch, Mode.PLAIN)

    assert calls == ["plain of None"]
    assert worker.step_log.counters.plain_tokens == 2


def test_the_scheduler_waits_for_whoever_reads_last(worker, batch, runner):
    draft_runner = worker.draft_worker.draft_runner
    assert worker.war_fastpath_runner is draft_runner

    decode(worker, batch, Mode.PLAIN)
    assert worker.war_fastpath_runner is runner

    worker._plain.drives_draft_last = True
    decode(worker, batch, Mode.PLAIN)
    assert worker.war_fastpath_runner is draft_runner

    worker._plain.drives_draft_last = False
    decode(worker, batch, Mode.PLAIN, Mode.SPECULATIVE)
    assert worker.war_fastpath_runner is draft_runner

    decode(worker, batch, Mode.PLAIN)
    batch.forward_mode = ForwardMode.EXTEND
    worker.forward_batch_generation(batch)
    assert worker.war_fastpath_runner is draft_runner


def test_switches_are_counted_and_steps_by_what_ran(worker, batch):
    s, p = Mode.SPECULATIVE, Mode.PLAIN
    decode(worker, batch, s, p, p, s, p)

    status = worker.specv2_status()
    assert status["switches"] == {"plain": 2, "speculative": 1}
    assert sum(status["steps"].values()) == 5
    assert status["mode"] == "plain"
    assert status["batch_size"] == 2
    assert status["draft_sync"] == "fake"


@pytest.mark.parametrize(
    ("device", "sizes", "family"),
    [("cpu", (), "plain"), ("cuda", (), "plain_eager"), ("cuda", (1, 4), "plain")],
)
def test_where_no_graph_was_captured_steps_count_as_eager(
    worker, batch, runner, caplog, device, sizes, family
):
    runner.device, worker.plain_runtime.sizes = device, CaptureSizes(sizes)
    worker.selector = worker._build_selector(CaptureSizes(sizes))

    decode(worker, batch, Mode.PLAIN, Mode.PLAIN)

    assert worker.specv2_status()["steps"] == {family: 2}
    assert caplog.text.count("runs without a CUDA graph") == (family == "plain_eager")


def test_verifies_are_counted_when_their_outcome_is_known(worker):
    requests = [SimpleNamespace(sampling_params=SimpleNamespace(custom_params=None))] * 3
    worker.specv2_observe(requests, verified([2, 0, 1]))

    assert worker.specv2_status()["accept_length"] == pytest.approx(2.0)


def test_a_verify_of_a_request_that_had_ended_is_not_counted(worker):
    request = SimpleNamespace(sampling_params=SimpleNamespace(custom_params=None))
    before = worker.step_log.acceptance.accept_length(2, 2)
    for _ in range(50):
        worker.specv2_observe([None, None], verified([0, 0]))
    assert worker.step_log.acceptance.accept_length(2, 2) == before
    worker.specv2_observe([None, request], verified([0, 2]))

    assert worker.specv2_status()["verifies"] == 1
    assert worker.specv2_status()["accept_length"] == 3


@pytest.mark.parametrize("field", ["hidden_states", "topk_p", None])
def test_a_draft_that_came_out_nan_is_counted_and_told_once(worker, batch, caplog, field):
    if field:
        getattr(batch.spec_info, field)[1, 0] = torch.nan
    for result in decode(worker, batch, *[Mode.SPECULATIVE] * (NAN_CHECK_STEPS + 1)):
        result.num_correct_drafts_per_req_cpu = [0, 0]
        result.speculative_num_draft_tokens = 3
        worker.specv2_observe(batch.reqs, result)

    assert worker.specv2_status()["nan_drafts"] == (2 if field else 0)
    assert caplog.text.count("The draft computes NaN") == (1 if field else 0)


@pytest.mark.parametrize("draft", ["another", None])
def test_only_a_draft_that_is_part_of_the_targets_checkpoint_is_updated_with_it(
    worker, monkeypatch, draft
):
    monkeypatch.setattr(EAGLEWorkerV2, "update_weights_from_disk", lambda self, request: "loaded")
    worker._draft_checkpoint = draft

    outcome = worker.update_weights_from_disk("request")

    if draft is None:
        assert outcome == "loaded"
    else:
        assert outcome[0] is True
        assert "the draft keeps those of another" in outcome[1]


@pytest.mark.parametrize(
    ("mode", "images", "own"),
    [(Mode.PLAIN, None, False), (Mode.PLAIN, "images", True), (Mode.SPECULATIVE, None, True)],
)
def test_only_while_off_a_prefill_leaves_out_the_drafts_own(
    worker, batch, calls, mode, images, own
):
    worker.step_log.mode, batch.forward_mode = mode, ForwardMode.EXTEND

    worker._prefill_draft(batch, None, None, images)

    assert calls == (["catch up", "draft's own prefill"] if own else ["prefill"])


def test_the_attention_of_plain_steps_is_asked_for_its_needs_too(worker):
    assert worker.plain_runtime.attn_backend in worker.spec_v2_attn_backends
    assert "a tier's" in worker.spec_v2_attn_backends


def test_always_speculating_is_upstream_alone(worker, batch, calls):
    worker.selector = worker.draft_sync = None

    assert worker.forward_batch_generation(batch).name == "upstream's result"
    assert calls == ["upstream"]
    assert worker.war_fastpath_runner is worker.draft_worker.draft_runner


def test_a_tier_is_put_in_before_its_step(worker, batch, calls):
    worker.control.policy = SimpleNamespace(
        name="tiers",
        decide=lambda batch_size: Decision(Mode.SPECULATIVE, False, "as scripted", steps=1),
    )
    worker.forward_batch_generation(batch)
    assert calls == ["catch up", "resume", "1 draft steps", "upstream"]
    assert worker.specv2_status()["draft_steps"] == 1


def test_what_auto_takes_and_thinks_is_noted(worker, batch, monkeypatch):
    """Steps here take next to nothing, which is less than was measured."""
    points = [Point(n, 100 * n * k, {0: 1.0, 2: 1.1}) for n in (1, 8) for k in (1, 2)]
    cost, noted = LiveCost(CostModel(points, 0.0)), []
    policy = AutoPolicy(cost, worker.step_log.acceptance, (0, 2), 0.02, 8)
    worker.control, worker.ps = (
        SimpleNamespace(policy=policy, cost=cost),
        SimpleNamespace(tp_size=1),
    )
    monkeypatch.setattr(worker.step_log, "estimated", lambda *thought: noted.append(thought))

    for _ in range(EVERY_STEPS):
        worker.forward_batch_generation(copy.copy(batch))

    assert cost.factors()["2"] < 0.8
    assert len(noted) == EVERY_STEPS
    assert noted[-1] == (policy.speed_up, policy.probes, policy.probe_cost_s)


def test_a_batch_whose_requests_all_opted_out_is_plain(worker, batch, calls):
    worker.control.policy = Scripted(Mode.SPECULATIVE)
    out, still_in = ({"speculative": value} for value in (False, True))
    for request, custom in zip(batch.reqs, (out, still_in), strict=True):
        request.sampling_params.custom_params = custom
    worker.forward_batch_generation(copy.copy(batch))
    assert calls[-1] == "upstream"

    batch.reqs[1].sampling_params.custom_params = out
    worker.forward_batch_generation(copy.copy(batch))
    assert calls[-1] == "plain of None"
    assert worker.specv2_status()["switches"] == {"plain": 1}


def test_a_request_that_says_neither_true_nor_false_is_told_of_once_for_each_value(
    caplog, monkeypatch
):
    def request(custom):
        return SimpleNamespace(sampling_params=SimpleNamespace(custom_params=custom))

    monkeypatch.setattr(opt_out, "_told", set())
    for value in ("no", 0, "no", None, True, False, 0):
        assert opted_out(request({"speculative": value})) is (value is False)
    told = [record.getMessage() for record in caplog.records]
    assert ["got 'no'" in told[0], "got 0" in told[1]] == [True, True]
    assert len(told) == 2
    for value in 3 * [*range(100)]:
        opted_out(request({"speculative": value}))
    assert len(caplog.records) == 16, "clients do not fill the log"


def test_what_a_request_that_opted_out_accepts_is_not_counted(worker):
    def request(custom):
        return SimpleNamespace(sampling_params=SimpleNamespace(custom_params=custom))

    before = worker.step_log.acceptance.accept_length(2, 2)
    worker.specv2_observe([request({"speculative": False})] * 500, verified([0] * 500))
    assert worker.step_log.acceptance.accept_length(2, 2) == before
    for _ in range(500):
        worker.specv2_observe([request({"speculative": 0}), request({"x": 1})], verified([0] * 2))
    assert worker.step_log.acceptance.accept_length(2, 2) < 1.2


@pytest.mark.parametrize("asked_for", [False, True])
def test_who_did_not_ask_for_auto_gets_a_server_without_step_times(
    worker, calls, monkeypatch, asked_for
):
    def fails(*args):
        raise TypeError("'NoneType' object is not subscriptable")

    monkeypatch.setattr(worker_module, "step_times", fails)
    worker._auto_asked_for = asked_for
    if asked_for:
        with pytest.raises(TypeError):
            worker._step_times((0, 2))
    else:
        assert worker._step_times((0, 2)) is None
        assert worker.config.dynamic == "always"
        assert "not subscriptable" in worker.specv2_status()["calibration_failure"]
    assert calls == ["reset"]


@pytest.mark.parametrize("asked_for", [False, True])
def test_who_asked_for_nothing_gets_sglangs_own_where_nothing_can_be_captured(
    worker, batch, calls, monkeypatch, asked_for
):
    def fails(self):
        self.draft_sync = "half made"
        raise CaptureError("no room")

    monkeypatch.setattr(EAGLEWorkerV2, "init_cuda_graphs", lambda self: None)
    monkeypatch.setattr(SpecV2Worker, "_capture_plain", fails)
    worker.target_worker.model_runner.decode_cuda_graph_runner = None
    worker.target_worker.model_runner.max_running_requests = 8
    worker.selector, worker.control, worker._asked_for = None, None, asked_for
    if asked_for:
        with pytest.raises(CaptureError):
            worker.init_cuda_graphs()
        return
    worker.init_cuda_graphs()
    worker.forward_batch_generation(batch)
    assert calls == ["upstream"]
    assert worker.specv2_status()["policy"] == "always"
    assert worker.specv2_status()["capture_failures"] == ["no room"]


def test_a_server_that_never_is_off_refuses_another_policy(worker):
    worker.control = None
    with pytest.raises(ConfigError, match="has no plain graphs"):
        worker.specv2_change({"speculative_dynamic": 0})


class Runner:
    spec_algorithm, init_new_workspace = "EAGLE3", False


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_agree_on_what_rank_0_learned(worker, ranks):
    worker.ps = SimpleNamespace(tp_size=ranks)
    group = SimpleNamespace(broadcast_object=lambda value, src: f"rank {src}'s")
    worker._target_worker = SimpleNamespace(model_runner=SimpleNamespace(tp_group=group))

    assert worker._agree("my own") == ("my own" if ranks == 1 else "rank 0's")


@pytest.mark.parametrize("fails", [False, True])
def test_a_capture_leaves_the_target_as_it_was(fails):
    runner = Runner()
    try:
        with _target_without_speculation(runner):
            assert runner.spec_algorithm.is_none()
            runner.init_new_workspace = True
            if fails:
                raise RuntimeError("no memory")
    except RuntimeError:
        assert fails
    assert (runner.spec_algorithm, runner.init_new_workspace) == ("EAGLE3", False)


@pytest.mark.parametrize("fails", [False, True])
def test_building_the_one_token_extend_leaves_the_drafts_arguments_as_they_were(fails):
    arguments = SimpleNamespace(speculative_num_draft_tokens=3, port=1)
    runner = SimpleNamespace(server_args=arguments)
    try:
        with rows_per_request(runner, 1):
            assert vars(runner.server_args) == {"speculative_num_draft_tokens": 1, "port": 1}
            if fails:
                raise RuntimeError("no memory")
    except RuntimeError:
        assert fails
    assert runner.server_args is arguments
    assert arguments.speculative_num_draft_tokens == 3
