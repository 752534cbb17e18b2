import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglang_specv2 import config, cpu
from sglang_specv2.cli import http
from sglang_specv2.config import (
    SWITCH,
    SpecV2Config,
    plugin_enabled,
    resolve,
    settings,
    validate_against_server,
)
from sglang_specv2.errors import ConfigError, SpecV2Error
from sglang_specv2.options import OPTIONS

N = "SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD"
M = "SGLANG_SPECV2_ENABLE_BATCH_THRESHOLD"
DYNAMIC = "SGLANG_SPECV2_DYNAMIC"
MARGIN = "SGLANG_SPECV2_SWITCH_MARGIN"


def test_nothing_given_is_measured():
    assert resolve({}, {}) == SpecV2Config(
        dynamic="auto",
        disable_batch_threshold=None,
        enable_batch_threshold=None,
        switch_min_dwell=8,
        switch_margin=0.02,
        step_choices=None,
        calibration=None,
        calibration_out=None,
        draft_sync="auto",
        test_schedule=None,
    )


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ({"disable_batch_threshold": 32}, {}, ("threshold", 32, 28)),
        ({"disable_batch_threshold": "32"}, {}, ("threshold", 32, 28)),
        ({}, {N: "32"}, ("threshold", 32, 28)),
        ({}, {N: " 32 ", M: ""}, ("threshold", 32, 28)),
        ({"disable_batch_threshold": 16}, {N: "32"}, ("threshold", 16, 14)),
        ({"disable_batch_threshold": 16}, {M: "4"}, ("threshold", 16, 4)),
        ({"disable_batch_threshold": 16, "enable_batch_threshold": 16}, {}, ("threshold", 16, 16)),
        ({"disable_batch_threshold": 16, "dynamic": None}, {}, ("threshold", 16, 14)),
        ({"dynamic": "threshold"}, {N: "9"}, ("threshold", 9, 8)),
        ({"dynamic": "never"}, {}, ("never", None, None)),
        ({"dynamic": "always"}, {N: "32", M: "16"}, ("always", None, None)),
        ({"disable_batch_threshold": 8}, {DYNAMIC: "never"}, ("threshold", 8, 7)),
        ({}, {DYNAMIC: "never"}, ("never", None, None)),
        ({"switch_margin": "0.1"}, {N: "32", DYNAMIC: "threshold"}, ("auto", None, None)),
        ({"calibration": "a.json"}, {}, ("auto", None, None)),
        ({"dynamic": "auto"}, {N: "32"}, ("auto", None, None)),
        ({"disable_batch_threshold": 8}, {MARGIN: "0.1"}, ("threshold", 8, 7)),
        ({}, {MARGIN: "0.1"}, ("auto", None, None)),
    ],
)
def test_flags_over_variables(options, environ, expected):
    found = resolve(options, environ)
    assert (
        found.dynamic,
        found.disable_batch_threshold,
        found.enable_batch_threshold,
    ) == expected


@pytest.mark.parametrize("value", [0, -1, "0", "-1", "abc", "", "1.5", 1.5, True, [8]])
def test_impossible_threshold_names_flag_expected_and_got(value):
    with pytest.raises(ConfigError) as error:
        resolve({"disable_batch_threshold": value}, {})
    assert str(error.value) == (
        f"--speculative-disable-batch-threshold: expected a whole number, at least 1, got {value!r}"
    )


@pytest.mark.parametrize("value", ["0", "-1", "abc"])
def test_impossible_variable_is_named(value):
    with pytest.raises(ConfigError, match=rf"^{N}: expected a whole number.*got '{value}'"):
        resolve({}, {N: value})


@pytest.mark.parametrize(
    ("options", "environ", "words"),
    [
        (
            {"disable_batch_threshold": 4, "enable_batch_threshold": 5},
            {},
            "--speculative-enable-batch-threshold: expected at most 4",
        ),
        ({"disable_batch_threshold": 4}, {M: "5"}, f"{M}: expected at most 4"),
        (
            {"enable_batch_threshold": 5},
            {},
            "--speculative-enable-batch-threshold needs --speculative-disable-batch-threshold",
        ),
        (
            {"dynamic": "threshold"},
            {},
            "--speculative-dynamic needs --speculative-disable-batch-threshold",
        ),
        (
            {"dynamic": "never", "disable_batch_threshold": 4},
            {},
            "--speculative-disable-batch-threshold 4 contradicts --speculative-dynamic never",
        ),
        ({}, {DYNAMIC: "always", N: "4"}, f"{N} 4 contradicts {DYNAMIC} always"),
        ({"switch_min_dwell": 4, "dynamic": "always"}, {}, "switch-min-dwell has no effect"),
        (
            {"switch_margin": 0.1, "disable_batch_threshold": 4},
            {},
            "contradicts",
        ),
        (
            {"step_choices": "0,1", "dynamic": "threshold", "disable_batch_threshold": 4},
            {},
            "--speculative-step-choices (0, 1) contradicts --speculative-dynamic threshold",
        ),
        ({}, {DYNAMIC: "never", MARGIN: "0.1"}, f"{MARGIN} 0.1 contradicts {DYNAMIC} never"),
        ({"switch_margin": 2}, {}, "expected a number from 0 to 1, got 2"),
        ({"switch_margin": "much"}, {}, "expected a number from 0 to 1, got 'much'"),
        ({"step_choices": "1,2"}, {}, "0 and at least one more, like 0,1,2, got '1,2'"),
        ({"step_choices": "0"}, {}, "0 and at least one more"),
        ({"step_choices": "zero"}, {}, "got 'zero'"),
        ({"calibration": ""}, {}, "expected the path of a file, got ''"),
        ({"switch_min_dwell": 0, "disable_batch_threshold": 4}, {}, "at least 1, got 0"),
        ({"dynamic": "sometimes"}, {}, "expected one of auto, threshold, always, never"),
        ({"draft_sync": "both"}, {}, "expected one of auto, kv, extend, off"),
        ({}, {"SGLANG_SPECV2_TEST_SCHEDULE": "every:0"}, "every:STEPS or random:SEED"),
        ({"batch_threshold": 4}, {}, "unknown option batch_threshold"),
    ],
)
def test_impossible_combinations(options, environ, words):
    with pytest.raises(ConfigError) as error:
        resolve(options, environ)
    assert words in str(error.value)


def test_constructor_checks_too():
    with pytest.raises(ConfigError, match="at least 1, got -3"):
        SpecV2Config(dynamic="threshold", disable_batch_threshold=-3)
    with pytest.raises(ConfigError, match="needs --speculative-disable-batch-threshold"):
        SpecV2Config(dynamic="threshold")


def test_config_error_is_a_value_error_and_ours():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, SpecV2Error)


@given(n=st.integers(1, 10_000))
def test_default_enable_threshold(n):
    m = SpecV2Config(dynamic="threshold", disable_batch_threshold=n).enable_batch_threshold
    assert m == (n - max(1, n // 8) if n > 1 else 1)
    assert 1 <= m <= n


@given(n=st.integers(1, 200), m=st.integers(1, 200))
def test_given_enable_threshold_is_kept_or_refused(n, m):
    def build():
        return SpecV2Config(
            dynamic="threshold", disable_batch_threshold=n, enable_batch_threshold=m
        )

    if m > n:
        with pytest.raises(ConfigError):
            build()
    else:
        assert build().enable_batch_threshold == m


@pytest.mark.parametrize("schedule", ["every:1", "every:30", "random:0", "random:17"])
def test_schedule(schedule):
    assert resolve({}, {"SGLANG_SPECV2_TEST_SCHEDULE": schedule}).test_schedule == schedule


def test_schedule_has_no_flag():
    (option,) = [option for option in OPTIONS if option.field == "test_schedule"]
    assert option.flag is None


def test_settings_name_their_source():
    found = settings({"draft_sync": "kv"}, {N: "4"})
    assert {name: tuple(setting) for name, setting in found.items()} == {
        "draft_sync": ("kv", "--speculative-draft-sync"),
        "disable_batch_threshold": (4, N),
    }


def test_from_server_args_reads_the_attached_options():
    args = argparse.Namespace(specv2_options={"disable_batch_threshold": 8})
    assert SpecV2Config.from_server_args(args, {N: "32"}).disable_batch_threshold == 8
    assert SpecV2Config.from_server_args(argparse.Namespace(), {N: "32"}) == resolve({}, {N: "32"})


def test_process_environment_is_the_default(monkeypatch):
    monkeypatch.setenv(N, "5")
    assert resolve({}).disable_batch_threshold == 5


@pytest.mark.parametrize(("value", "on"), [("0", False), ("1", True), ("", True), (None, True)])
def test_plugin_enabled(value, on):
    assert plugin_enabled({} if value is None else {"SGLANG_SPECV2": value}) is on


def test_plugin_enabled_refuses_other_values():
    with pytest.raises(ConfigError, match=r"SGLANG_SPECV2: expected 0 .* got 'no'"):
        plugin_enabled({"SGLANG_SPECV2": "no"})


def threshold(n):
    return SpecV2Config(dynamic="threshold", disable_batch_threshold=n)


@pytest.mark.parametrize(
    ("n", "max_running_requests", "capture_sizes"),
    [(32, 48, (1, 2, 32)), (32, 48, ()), (47, 48, (48,)), (8, 256, (8, 256))],
)
def test_reachable_threshold_is_quiet(n, max_running_requests, capture_sizes):
    assert not validate_against_server(
        threshold(n), max_running_requests=max_running_requests, capture_sizes=capture_sizes
    )


@pytest.mark.parametrize("n", [48, 64])
def test_threshold_beyond_sglang_s_silent_48_warns(n):
    (warning,) = validate_against_server(
        threshold(n), max_running_requests=48, capture_sizes=(1, 48)
    )
    assert f"{n} is never crossed" in warning
    assert "SGLang sets 48" in warning
    assert "--max-running-requests" in warning


def test_threshold_beyond_another_limit_does_not_blame_the_48():
    (warning,) = validate_against_server(threshold(9), max_running_requests=8, capture_sizes=())
    assert "at most 8 requests" in warning
    assert "48" not in warning


def test_threshold_beyond_the_capture_sizes_is_an_error():
    with pytest.raises(ConfigError) as error:
        validate_against_server(threshold(64), max_running_requests=128, capture_sizes=(1, 8, 32))
    assert "expected at most 32" in str(error.value)
    assert "got 64" in str(error.value)
    assert "--cuda-graph-max-bs-decode" in str(error.value)


def test_without_threshold_nothing_to_validate():
    assert not validate_against_server(SpecV2Config(), max_running_requests=1, capture_sizes=(1,))


def test_one_table_names_every_field():
    fields = {option.field for option in OPTIONS}
    assert fields == set(SpecV2Config.__dataclass_fields__)
    assert len({option.variable for option in OPTIONS}) == len(OPTIONS)
    assert all(option.variable.startswith(config.SWITCH + "_") for option in OPTIONS)


@pytest.mark.parametrize(
    ("options", "environ", "asked"),
    [
        ({}, {}, False),
        ({"draft_sync": "kv", "switch_min_dwell": 4}, {}, False),
        ({"dynamic": "auto"}, {}, True),
        ({"switch_margin": 0.1}, {}, True),
        ({}, {"SGLANG_SPECV2_CALIBRATION": "a.json"}, True),
        ({}, {DYNAMIC: "auto"}, True),
    ],
)
def test_whether_auto_was_asked_for(options, environ, asked):
    args = argparse.Namespace(specv2_options=options)
    assert config.auto_asked_for(args, environ) == asked


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "SGLANG_SPECV2_DISABLE_BATCH_TRESHOLD",
            "there is no such variable; did you mean SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD?",
        ),
        ("SGLANG_SPECV2_ZZZZZZZZZZZZZZZZZZ", "there is no such variable; "),
    ],
)
def test_a_variable_that_is_none_of_ours_is_refused(name, told):
    with pytest.raises(ConfigError, match=f"^{name}: .*") as error:
        resolve({}, {name: "4", "SGLANG_OTHER": "1", "SGLANG_SPECV2X": "1"})
    assert told in str(error.value)


def test_variables_that_other_modules_read_are_known():
    ours = cpu.SWITCH, cpu._RESTARTED, http.API_KEY, http.ADMIN_API_KEY, SWITCH
    assert resolve({}, dict.fromkeys(ours, "1")) == SpecV2Config()


def test_what_a_setting_contradicts_is_named_as_it_was_given():
    with pytest.raises(ConfigError) as error:
        resolve({"disable_batch_threshold": 4, "switch_margin": 0.1}, {})
    assert str(error.value) == (
        "--speculative-switch-margin 0.1 contradicts --speculative-disable-batch-threshold (policy "
        "threshold): expected auto; leave one of them out"
    )
