"""ThresholdPolicy: tables of single cases, then properties over any walk of batch sizes."""

from itertools import pairwise
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sglang_specv2.errors import BatchShapeError, ConfigError
from sglang_specv2.policy import Mode, ThresholdPolicy

SPECULATIVE, PLAIN = Mode.SPECULATIVE, Mode.PLAIN


def decisions(policy, batch_sizes):
    return [policy.decide(batch_size) for batch_size in batch_sizes]


def modes(policy, batch_sizes):
    return "".join(decision.mode[0] for decision in decisions(policy, batch_sizes))


@pytest.mark.parametrize(
    ("min_dwell", "batch_sizes", "expected"),
    [
        pytest.param(0, [1, 4, 8, 9, 8, 7, 6, 9], "ssspppsp", id="hysteresis"),
        pytest.param(0, [9, 9, 6], "pps", id="first step above N is plain"),
        pytest.param(0, [7, 9, 7], "spp", id="first step between M and N speculates"),
        pytest.param(8, [1, 9, 9], "spp", id="the first switch needs no dwell"),
        pytest.param(3, [9, 1, 9, 9, 9, 1], "pssspp", id="dwell counts from the switch"),
        pytest.param(1, [1, 9, 1, 9], "spsp", id="a dwell of 1 constrains nothing"),
        pytest.param(0, [1, 9, 1, 9], "spsp", id="a dwell of 0 constrains nothing"),
        pytest.param(4, [1, 9, 1, 1, 7, 7, 6], "sppppps", id="held, then the band holds on"),
    ],
)
def test_modes_of_a_walk(min_dwell, batch_sizes, expected):
    assert modes(ThresholdPolicy(8, 6, min_dwell), batch_sizes) == expected


def test_enable_at_zero_never_speculates_again():
    assert modes(ThresholdPolicy(1, 0, 0), [1, 2, 1, 1, 1]) == "spppp"


def test_equal_thresholds_leave_no_band():
    assert modes(ThresholdPolicy(4, 4, 0), [4, 5, 4, 5]) == "spsp"


def test_switched_is_about_the_step_before():
    policy = ThresholdPolicy(8, 6, 0)
    switched = [decision.switched for decision in decisions(policy, [9, 9, 6, 6, 9])]
    assert switched == [False, False, True, False, True]


@pytest.mark.parametrize(
    ("batch_sizes", "reason"),
    [
        ([33], "batch size 33 > 32 (disable threshold)"),
        ([28], "batch size 28 <= 28 (enable threshold)"),
        (
            [30],
            "batch size 30 is above 28 (enable threshold) and not above 32 (disable threshold): "
            "speculative at first",
        ),
        (
            [33, 30],
            "batch size 30 is above 28 (enable threshold) and not above 32 (disable threshold): "
            "plain as before",
        ),
        (
            [1, 33, 2, 2],
            "batch size 2 <= 28 (enable threshold); held at plain: 2 of 8 steps (minimum dwell) "
            "since the last switch",
        ),
    ],
)
def test_reason_names_the_numbers(batch_sizes, reason):
    assert decisions(ThresholdPolicy(32, 28, 8), batch_sizes)[-1].reason == reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0, 8), "disable threshold: expected a whole number, at least 1, got 0"),
        ((-1, -2, 8), "disable threshold: expected a whole number, at least 1, got -1"),
        (("32", 28, 8), "disable threshold: expected a whole number, at least 1, got '32'"),
        ((True, 0, 8), "disable threshold: expected a whole number, at least 1, got True"),
        ((8, -1, 8), "enable threshold: expected a whole number, at least 0, got -1"),
        ((8, None, 8), "enable threshold: expected a whole number, at least 0, got None"),
        ((8, 9, 8), "enable threshold: expected at most 8, the disable threshold, got 9"),
        ((8, 6, -1), "minimum dwell: expected a whole number, at least 0, got -1"),
        ((8, 6, 1.5), "minimum dwell: expected a whole number, at least 0, got 1.5"),
    ],
)
def test_impossible_values(arguments, message):
    with pytest.raises(ConfigError) as error:
        ThresholdPolicy(*arguments)
    assert str(error.value).startswith(message)


def test_an_empty_batch_is_refused_and_is_no_step():
    policy = ThresholdPolicy(8, 6, 3)
    assert modes(policy, [1, 9]) == "sp"
    with pytest.raises(BatchShapeError, match="expected at least 1, got 0"):
        policy.decide(0)
    assert modes(policy, [1, 1, 1]) == "pps"


@st.composite
def walks(draw):
    """Settings of a policy, and batch sizes that keep close to its thresholds."""
    disable_above = draw(st.integers(1, 40))
    enable_at = draw(st.integers(0, disable_above))
    min_dwell = draw(st.integers(0, 12))
    near = st.integers(max(1, enable_at - 1), disable_above + 2)
    batch_sizes = draw(st.lists(near | st.integers(1, 80), min_size=1, max_size=120))
    return (disable_above, enable_at, min_dwell), batch_sizes


@given(walks())
def test_never_two_switches_within_the_dwell(walk):
    (disable_above, enable_at, min_dwell), batch_sizes = walk
    made = decisions(ThresholdPolicy(disable_above, enable_at, min_dwell), batch_sizes)
    switches = [step for step, decision in enumerate(made) if decision.switched]
    assert all(after - before >= min_dwell for before, after in pairwise(switches))


@given(walks())
def test_switches_are_bounded_by_crossings_and_by_dwell(walk):
    (disable_above, enable_at, min_dwell), batch_sizes = walk
    made = decisions(ThresholdPolicy(disable_above, enable_at, min_dwell), batch_sizes)
    switches = sum(decision.switched for decision in made)
    outside = [n > disable_above for n in batch_sizes if n > disable_above or n <= enable_at]
    crossings = sum(before != after for before, after in pairwise(outside))
    starts_in_the_band = enable_at < batch_sizes[0] <= disable_above
    assert switches <= crossings + starts_in_the_band
    assert switches <= ceil(len(batch_sizes) / max(1, min_dwell))


@given(walks(), st.data())
def test_no_switch_between_the_thresholds(walk, data):
    (disable_above, enable_at, min_dwell), batch_sizes = walk
    assume(enable_at < disable_above)
    policy = ThresholdPolicy(disable_above, enable_at, min_dwell)
    decisions(policy, batch_sizes)
    band = data.draw(st.lists(st.integers(enable_at + 1, disable_above), min_size=1))
    assert not any(decision.switched for decision in decisions(policy, band))


@given(walks())
def test_the_mode_is_right_whenever_the_dwell_allows_it(walk):
    (disable_above, enable_at, min_dwell), batch_sizes = walk
    policy = ThresholdPolicy(disable_above, enable_at, min_dwell)
    last_switch = -min_dwell
    for step, batch_size in enumerate(batch_sizes):
        decision = policy.decide(batch_size)
        if step - last_switch >= min_dwell:
            if batch_size > disable_above:
                assert decision.mode is PLAIN
            elif batch_size <= enable_at:
                assert decision.mode is SPECULATIVE
        if decision.switched:
            last_switch = step


@given(walks())
def test_the_same_sequence_gives_the_same_decisions(walk):
    settings, batch_sizes = walk
    assert decisions(ThresholdPolicy(*settings), batch_sizes) == decisions(
        ThresholdPolicy(*settings), batch_sizes
    )


@given(walks())
def test_switched_means_another_mode_than_the_step_before(walk):
    settings, batch_sizes = walk
    first, *others = decisions(ThresholdPolicy(*settings), batch_sizes)
    assert not first.switched
    for before, after in pairwise([first, *others]):
        assert after.switched == (after.mode is not before.mode)
