"""What the worker did, as counts and as metrics."""

import logging
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from cuda_graphs import GraphKey
from sglang_specv2 import step_log
from sglang_specv2.metrics import NAMES, DynamicMetrics
from sglang_specv2.policy import Acceptance, Cause, Decision, Mode
from sglang_specv2.step_log import StepLog

LABELS = {"model_name": "m", "tp_rank": "0"}
SPECULATE = Decision(Mode.SPECULATIVE, True, "small", None, Cause.BATCH_SIZE)
PLAIN = Decision(Mode.PLAIN, True, "large", None, Cause.BATCH_SIZE)


class Clock:
    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    monotonic = perf_counter


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(step_log, "time", clock)
    return clock


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def log(registry, clock):
    log = StepLog(Mode.SPECULATIVE, Acceptance(2), 2)
    log.use_metrics(DynamicMetrics(LABELS, registry), {"disable_batch_threshold": 8})
    return log


def selection(family, rows):
    return SimpleNamespace(key=GraphKey(family, rows), batch_size=rows)


def launched(log, decision, selection):
    """A step that is launched in no time."""
    log.launched(decision, selection, step_log.time.perf_counter())


def value(registry, name, **labels):
    return registry.get_sample_value(f"sglang:spec_dynamic_{name}", LABELS | labels)


def test_what_was_accepted_gets_old_by_plain_steps_whoever_decided_them(log):
    """After many of them new outcomes outweigh the old ones."""
    aged, fresh = log.acceptance, Acceptance(2)
    for acceptance in (aged, fresh):
        for _ in range(200):
            acceptance.observe(4, [2] * 4, 2)
    for _ in range(2000):
        launched(log, PLAIN, selection("plain", 4))
    launched(log, SPECULATE, selection("speculative", 4))
    for acceptance in (aged, fresh):
        for _ in range(8):
            acceptance.observe(4, [0] * 4, 2)
    assert aged.accept_length(4, 2) < fresh.accept_length(4, 2) - 0.2


def test_steps_tokens_and_seconds_by_mode(log, registry, clock):
    launched(log, SPECULATE, selection("speculative", 4))
    clock.now += 0.010
    launched(log, PLAIN, selection("plain", 5))
    clock.now += 0.004
    launched(log, PLAIN, selection("plain", 5))
    log.verified([2, 0, 1, 1, 0], [2, 0, 1, 1], [2, 0, 1, 1], 2)  # The fifth had ended before.

    speculative = {"mode": "speculative", "draft_steps": "2"}
    plain = {"mode": "plain", "draft_steps": "0"}
    assert value(registry, "steps_total", **speculative) == 1
    assert value(registry, "steps_total", **plain) == 2
    assert value(registry, "tokens_total", **speculative) == 9
    assert value(registry, "tokens_total", **plain) == 10
    assert value(registry, "seconds_total", **speculative) == pytest.approx(0.010)
    assert value(registry, "seconds_total", **plain) == pytest.approx(0.004)
    assert log.counters.seconds == pytest.approx({"speculative": 0.010, "plain": 0.004})
    assert value(registry, "verifies_total") == 4
    assert value(registry, "drafted_tokens_total") == 8
    assert value(registry, "accepted_drafts_total") == 4


def test_the_time_that_a_launch_takes_is_its_steps(log, clock):
    """As on a CPU, or where small steps wait for the launches of the host."""
    for decision, step_s in ((SPECULATE, 0.010), (PLAIN, 0.002), (PLAIN, 0.002), (SPECULATE, 0.0)):
        began_s = clock.now
        clock.now += step_s
        log.launched(decision, selection("x", 4), began_s)
    assert log.counters.seconds == pytest.approx({"speculative": 0.010, "plain": 0.004})


def test_switches_carry_direction_and_reason(log, registry):
    for decision in (SPECULATE, PLAIN, PLAIN, SPECULATE):
        launched(log, decision, selection("x", 1))
    assert value(registry, "switches_total", to="plain", reason="batch_size") == 1
    assert value(registry, "switches_total", to="speculative", reason="batch_size") == 1
    assert value(registry, "speculating") == 1
    assert value(registry, "draft_steps") == 2


def test_idle_time_is_nobodys(log, clock):
    launched(log, PLAIN, selection("plain", 1))
    clock.now += 0.005
    launched(log, PLAIN, selection("plain", 1))
    clock.now += 3600
    log.interrupted()
    clock.now += 1
    launched(log, PLAIN, selection("plain", 1))
    assert log.counters.seconds["plain"] == pytest.approx(0.010)


def test_accept_rate_never_exceeds_one_and_off_steps_do_not_enter(log, registry):
    for _ in range(200):
        log.verified([2] * 4, [2] * 4, [2] * 4, 2)
        launched(log, PLAIN, selection("plain", 4))
    assert 0.97 < value(registry, "accept_rate") <= 1
    assert 2.95 < value(registry, "accept_length") <= 3


def test_probes_are_counted_once(log, registry):
    log.estimated(1.2, 1, 0.5)
    log.estimated(1.3, 1, 0.5)
    log.estimated(0.9, 2, 0.75)
    assert value(registry, "probes_total") == 2
    assert value(registry, "probe_cost_seconds_total") == pytest.approx(0.75)
    assert value(registry, "estimated_speed_up") == pytest.approx(0.9)


def test_settings_are_gauges_and_nan_where_they_mean_nothing(log, registry):
    assert value(registry, "disable_batch_threshold") == 8
    log.settings_changed({"switch_margin": 0.02})
    assert value(registry, "switch_margin") == 0.02
    threshold = value(registry, "disable_batch_threshold")
    assert threshold != threshold
    log.settings_changed({"dynamic": "auto"})
    log.estimated(1.2, 0, 0.0)
    log.settings_changed({"dynamic": "auto"})
    assert value(registry, "estimated_speed_up") == 1.2
    log.settings_changed({"dynamic": "never"})
    speed_up = value(registry, "estimated_speed_up")
    assert speed_up != speed_up


def test_eager_steps_and_resumes(log, registry, caplog):
    launched(log, PLAIN, selection("plain_eager", 99))
    with caplog.at_level(logging.WARNING):
        log.eager("above the largest")
        log.eager("above the largest")
    log.resumed()
    assert value(registry, "eager_steps_total", mode="plain") == 2
    assert value(registry, "resumes_total") == 1
    assert caplog.text.count("above the largest") == 1


def test_one_line_a_second(log, clock, caplog):
    with caplog.at_level(logging.INFO):
        for _ in range(10):
            clock.now += 0.25
            for decision in (PLAIN, SPECULATE):
                launched(log, decision, selection("x", 1))
    assert 2 <= caplog.text.count("Decode is ") <= 4


def test_the_last_line_says_what_mode_it_is_also_after_a_probe(log, clock, caplog):
    with caplog.at_level(logging.INFO):
        launched(log, PLAIN, selection("x", 1))
        clock.now += 0.05
        launched(log, SPECULATE, selection("x", 1))
        for _ in range(30):
            clock.now += 0.05
            launched(log, SPECULATE, selection("x", 1))
    told = [record.getMessage() for record in caplog.records]
    assert told == ["Decode is plain now: large.", "Decode is speculative now: small."]


def test_what_went_and_came_back_within_a_second_gets_no_second_line(log, clock, caplog):
    with caplog.at_level(logging.INFO):
        for decision in (PLAIN, SPECULATE, PLAIN):
            launched(log, decision, selection("x", 1))
        clock.now += 5
        launched(log, PLAIN, selection("x", 1))
    assert [record.getMessage() for record in caplog.records] == ["Decode is plain now: large."]


def test_without_metrics_nothing_is_kept_but_counts(clock):
    log = StepLog(Mode.PLAIN, Acceptance(2), 2)
    launched(log, PLAIN, selection("plain", 3))
    log.verified([1], [1], [1], 2)
    log.estimated(1.0, 1, 1.0)
    assert log.counters.plain_tokens == 3
    assert log.counters.switches == {}


def test_every_name_is_registered(log, registry):
    families = list(registry.collect())
    found = {f"{f.name}_total" if f.type == "counter" else f.name for f in families}
    assert set(NAMES) == found
