"""Changing the policy of a running server, by the numbers that SGLang's endpoint carries."""

import pytest

from sglang_specv2.config import SpecV2Config
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy import Acceptance, AutoPolicy, CostModel, Mode, Point, ThresholdPolicy
from sglang_specv2.policy.control import CODES, PolicyControl

COST = CostModel([Point(1, context, {0: 5e-3, 2: 8e-3}) for context in (100, 1000)], 1e-3)


def control(config=None, cost=COST):
    def check(config):
        if (config.disable_batch_threshold or 0) > 64:
            raise ConfigError("is never crossed")

    return PolicyControl(config or SpecV2Config(), Acceptance(2), (0, 2), cost, check)


def test_a_threshold_alone_means_policy_threshold():
    c = control()
    c.change({"speculative_disable_batch_threshold": 16})
    assert isinstance(c.policy, ThresholdPolicy)
    assert (c.policy.disable_above, c.policy.enable_at, c.policy.min_dwell) == (16, 14, 8)
    assert c.as_dict() == {
        "dynamic": "threshold",
        "disable_batch_threshold": 16,
        "enable_batch_threshold": 14,
        "switch_min_dwell": 8,
    }


def test_what_is_not_given_stays():
    c = control(SpecV2Config(dynamic="threshold", disable_batch_threshold=20, switch_min_dwell=3))
    c.change({"speculative_enable_batch_threshold": 5})
    assert (c.policy.disable_above, c.policy.enable_at, c.policy.min_dwell) == (20, 5, 3)
    c.change({"speculative_switch_min_dwell": 9})
    assert (c.policy.disable_above, c.policy.enable_at, c.policy.min_dwell) == (20, 5, 9)
    c.change({"speculative_disable_batch_threshold": 40})
    assert (c.policy.disable_above, c.policy.enable_at) == (40, 5)


def test_an_enable_threshold_that_followed_goes_on_following():
    c = control(SpecV2Config(dynamic="threshold", disable_batch_threshold=20))
    c.change({"speculative_disable_batch_threshold": 40})
    assert (c.policy.disable_above, c.policy.enable_at) == (40, 35)
    c.change({"speculative_dynamic": CODES["never"]})
    c.change({"speculative_disable_batch_threshold": 16})
    assert (c.policy.disable_above, c.policy.enable_at) == (16, 14)


def test_a_threshold_goes_on_in_the_mode_and_the_dwell_that_it_was_in():
    thresholds = {"disable_batch_threshold": 20, "enable_batch_threshold": 5}
    c = control(SpecV2Config(dynamic="threshold", **thresholds, switch_min_dwell=3))
    for batch_size in (4, 30, 10):
        c.policy.decide(batch_size)
    c.change({"speculative_switch_min_dwell": 4})
    modes = [c.policy.decide(batch_size).mode for batch_size in (10, 1, 1)]
    assert modes == [Mode.PLAIN, Mode.PLAIN, Mode.SPECULATIVE]


def test_auto_goes_on_where_it_was_also_after_another_policy():
    c = control()
    for _ in range(5000):
        c.policy.decide(1, 300)
    probes = c.policy.probes
    assert probes > 0
    c.change({"speculative_switch_margin": 0.3})
    assert (c.policy.probes, c.policy.margin) == (probes, 0.3)
    c.change({"speculative_dynamic": CODES["never"]})
    c.change({"speculative_dynamic": CODES["auto"]})
    assert (c.policy.probes, c.policy.margin) == (probes, 0.3)


def test_what_is_not_given_comes_back_with_its_policy():
    c = control()
    c.change({"speculative_switch_margin": 0.1})
    thresholds = {"disable": 20, "enable": 5}
    c.change({f"speculative_{name}_batch_threshold": n for name, n in thresholds.items()})
    c.change({"speculative_dynamic": CODES["always"]})
    c.change({"speculative_dynamic": CODES["threshold"]})
    assert (c.policy.disable_above, c.policy.enable_at) == (20, 5)
    c.change({"speculative_dynamic": CODES["auto"]})
    assert c.policy.margin == 0.1


def test_a_margin_alone_means_policy_auto():
    c = control(SpecV2Config(dynamic="never"))
    c.change({"speculative_switch_margin": 0.1})
    assert isinstance(c.policy, AutoPolicy)
    assert c.policy.margin == 0.1
    assert c.as_dict() == {"dynamic": "auto", "switch_margin": 0.1, "switch_min_dwell": 8}


@pytest.mark.parametrize("policy", ["never", "always", "auto"])
def test_policies_have_codes(policy):
    c = control(SpecV2Config(dynamic="threshold", disable_batch_threshold=20))
    c.change({"speculative_dynamic": CODES[policy]})
    assert c.policy.name == policy


def test_the_threshold_of_the_start_can_be_gone_back_to():
    c = control(SpecV2Config(dynamic="threshold", disable_batch_threshold=20))
    c.change({"speculative_disable_batch_threshold": 30})
    c.change({"speculative_dynamic": CODES["threshold"]})
    assert c.policy.disable_above == 30


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"speculative_disable_batch_threshold": 0}, "at least 1, got 0"),
        ({"speculative_disable_batch_threshold": 1.5}, "whole number"),
        ({"speculative_disable_batch_threshold": 65}, "is never crossed"),
        ({"speculative_switch_margin": -1}, "a number from 0 to 1, got -1"),
        ({"speculative_dynamic": 4}, "expected one of 0 (never), 1 (always), 2 (threshold)"),
        ({"speculative_dynamic": 2}, "needs --speculative-disable-batch-threshold N"),
        (
            {"speculative_dynamic": 3, "speculative_enable_batch_threshold": 3},
            "speculative_enable_batch_threshold 3 contradicts policy auto: expected threshold",
        ),
        (
            {"speculative_dynamic": 0, "speculative_switch_margin": 0.02},
            "speculative_switch_margin 0.02 contradicts policy never: expected auto",
        ),
        (
            {"speculative_dynamic": 1, "speculative_switch_min_dwell": 8},
            "contradicts policy always: expected threshold or auto",
        ),
        ({"speculative_dynamic": True}, "expected one of 0 (never), 1 (always)"),
        ({"speculative_enable_batch_threshold": 3}, "needs --speculative-disable-batch"),
        (
            {
                "speculative_disable_batch_threshold": 3,
                "speculative_enable_batch_threshold": 4,
            },
            "expected at most 3",
        ),
        ({"speculative_draft_sync": 1}, "speculative_draft_sync: expected one of speculative_dyn"),
        ({"switch_margin": 0.1}, "switch_margin: expected one of"),
    ],
)
def test_a_refused_change_changes_nothing(values, words):
    c = control()
    policy, config = c.policy, c.config
    with pytest.raises(ConfigError) as error:
        c.change(values)
    assert words in str(error.value)
    assert c.policy is policy
    assert c.config is config


def test_auto_without_step_times_is_refused():
    c = control(SpecV2Config(dynamic="never"), cost=None)
    with pytest.raises(ConfigError, match="expected step times, got none"):
        c.change({"speculative_dynamic": CODES["auto"]})
