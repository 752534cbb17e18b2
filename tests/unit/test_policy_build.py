"""The other policies, what ``build`` makes of a configuration, and what the package imports."""

import os
import pkgutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_specv2 import policy as policy_package
from sglang_specv2.config import SpecV2Config
from sglang_specv2.errors import BatchShapeError, ConfigError
from sglang_specv2.policy import (
    Acceptance,
    AlwaysPolicy,
    AutoPolicy,
    Cause,
    CostModel,
    Decision,
    Mode,
    NeverPolicy,
    Point,
    SchedulePolicy,
    ThresholdPolicy,
)

COST = CostModel([Point(1, context, {0: 5e-3, 2: 8e-3}) for context in (100, 1000)], resume_s=1e-3)


def build(config, cost=COST):
    return policy_package.build(config, Acceptance(2), (0, 2), cost)


def modes(policy, steps):
    return "".join(policy.decide(1).mode[0] for _ in range(steps))


@pytest.mark.parametrize(
    ("policy", "mode"), [(AlwaysPolicy(), Mode.SPECULATIVE), (NeverPolicy(), Mode.PLAIN)]
)
@pytest.mark.parametrize("batch_size", [1, 1000])
def test_fixed_policies_ignore_the_batch(policy, mode, batch_size):
    decision = policy.decide(batch_size)
    assert (decision.mode, decision.switched) == (mode, False)
    assert policy.name in decision.reason


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("every:1", "spspspsp"), ("every:3", "ssspppss"), ("every:8", "ssssssss")],
)
def test_every(schedule, expected):
    assert modes(SchedulePolicy(schedule), 8) == expected


def test_random_is_a_function_of_its_seed():
    walk = modes(SchedulePolicy("random:17"), 400)
    assert walk == modes(SchedulePolicy("random:17"), 400)
    assert walk != modes(SchedulePolicy("random:18"), 400)


def test_random_switches_a_third_of_the_steps():
    policy = SchedulePolicy("random:17")
    switches = sum(policy.decide(1).switched for _ in range(3000))
    assert 900 < switches < 1100


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_schedules_start_speculative_and_report_their_switches(seed, steps):
    for policy in (SchedulePolicy(f"random:{seed}"), SchedulePolicy(f"every:{steps}")):
        before = policy.decide(1)
        assert (before.mode, before.switched) == (Mode.SPECULATIVE, False)
        for _ in range(40):
            after = policy.decide(1)
            assert after.switched == (after.mode is not before.mode)
            before = after


def test_a_schedule_says_where_it_is():
    policy = SchedulePolicy("every:1")
    policy.decide(1)
    assert policy.decide(1) == Decision(
        Mode.PLAIN,
        switched=True,
        reason="step 1 of the schedule 'every:1'",
        cause=Cause.SCHEDULE,
    )


@pytest.mark.parametrize(
    "schedule", ["", "every", "every:", "every:0", "every:-1", "every:x", "random:", "other:3", 3]
)
def test_impossible_schedules(schedule):
    with pytest.raises(ConfigError, match="expected every:STEPS"):
        SchedulePolicy(schedule)


@pytest.mark.parametrize("policy", [AlwaysPolicy(), NeverPolicy(), SchedulePolicy("every:1")])
def test_an_empty_batch_is_refused(policy):
    with pytest.raises(BatchShapeError, match="expected at least 1, got 0"):
        policy.decide(0)


def test_mode_reads_as_its_value():
    assert f"{Mode.PLAIN} {Mode.PLAIN!s}" == "plain plain"
    assert Mode.PLAIN == "plain"
    assert Mode.PLAIN.other is Mode.SPECULATIVE
    assert Mode.SPECULATIVE.other is Mode.PLAIN


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (SpecV2Config(), AutoPolicy),
        (SpecV2Config(dynamic="always"), AlwaysPolicy),
        (SpecV2Config(dynamic="never"), NeverPolicy),
        (SpecV2Config(dynamic="threshold", disable_batch_threshold=32), ThresholdPolicy),
        (SpecV2Config(dynamic="never", test_schedule="random:17"), SchedulePolicy),
    ],
)
def test_build(config, kind):
    assert type(build(config)) is kind


def test_build_passes_the_thresholds_on():
    policy = build(
        SpecV2Config(
            dynamic="threshold",
            disable_batch_threshold=32,
            enable_batch_threshold=20,
            switch_min_dwell=5,
        )
    )
    assert (policy.disable_above, policy.enable_at, policy.min_dwell) == (32, 20, 5)


def test_auto_needs_step_times():
    with pytest.raises(ConfigError, match="expected step times, got none"):
        build(SpecV2Config(), cost=None)


def test_policy_imports_neither_torch_nor_sglang():
    modules = [
        f"sglang_specv2.policy.{module.name}"
        for module in pkgutil.iter_modules(policy_package.__path__)
    ]
    assert "sglang_specv2.policy.threshold" in modules
    code = f"""
import sys, {", ".join(modules)}
print(sorted({{"torch", "sglang"}} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr
