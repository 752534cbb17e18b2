import math

import pytest

from sglang_specv2.benchmark.statistics import (
    RESOLUTION,
    Ratio,
    crossing,
    mean,
    mean_ratio,
    paired_ratio,
    unpaired_ratio,
)


def by_round(*values):
    return dict(enumerate(values))


def test_a_paired_ratio_is_the_median_of_the_rounds_ratios():
    # The ratio of the medians would be 20 / 10.
    ratio = paired_ratio(by_round(10, 20, 300), by_round(10, 10, 100))
    assert ratio.value == 2
    assert (ratio.low, ratio.high) == (1, 3)


def test_rounds_that_only_one_arm_has_are_no_pair():
    ratio = paired_ratio({0: 10, 1: 20, 3: 8}, {1: 10, 2: 50, 3: 8})
    assert ratio.value == 1.5
    assert not ratio.known
    assert paired_ratio({0: 1}, {1: 1}) is None


def test_an_unpaired_ratio_is_that_of_the_medians():
    ratio = unpaired_ratio(by_round(10, 20, 300), by_round(100, 10, 10))
    assert ratio.value == 2
    assert ratio.low == pytest.approx(0.1)
    assert ratio.high == 30
    assert unpaired_ratio({}, {0: 1}) is None


def test_intervals_are_the_same_every_time():
    a, b = by_round(10, 11, 12, 13), by_round(9, 10, 10, 11)
    assert paired_ratio(a, b) == paired_ratio(a, b)
    assert unpaired_ratio(a, b) == unpaired_ratio(a, b)


def test_two_rounds_have_no_interval():
    ratio = paired_ratio(by_round(10, 10), by_round(20, 20))
    assert ratio.value == 0.5
    assert math.isnan(ratio.low)
    assert not ratio.resolved


@pytest.mark.parametrize(
    ("value", "low", "high", "resolved"),
    [
        (0.5, 0.45, 0.55, True),  # a clear difference, roughly known
        (0.97, 0.965, 0.975, True),
        (0.97, 0.95, 1.005, False),  # includes one
        (0.97, 0.90, 0.99, False),  # wider than what it says
        (1.001, 0.995, 1.007, True),  # the same, to the resolution
        (1.001, 0.97, 1.03, False),  # says "the same", and does not know
        (1.0, 1 - 0.9 * RESOLUTION, 1 + 0.9 * RESOLUTION, True),
        (1.0, 1 - 1.1 * RESOLUTION, 1 + 1.1 * RESOLUTION, False),
        (1.5, 1.4, 1.6, True),
    ],
)
def test_what_a_ratio_resolves(value, low, high, resolved):
    assert Ratio(value, low, high).resolved is resolved


def test_the_interval_of_a_mean_covers_the_truth_of_a_wide_sample():
    sample = [1, 2, 3] * 200
    assert mean(sample).value == 2
    assert mean(sample).low == pytest.approx(2 - 1.96 * 0.8172 / math.sqrt(600), abs=1e-3)
    assert not mean([1, 2]).known


def test_a_ratio_of_means_narrows_with_the_sample():
    few = mean_ratio([2, 3, 1] * 5, [2, 2, 2] * 5)
    many = mean_ratio([2, 3, 1] * 80, [2, 2, 2] * 80)
    assert few.value == many.value == 1
    assert many.half_width < few.half_width / 3


def test_curves_cross_between_levels_over_log2():
    # Differences 100 and −100 at 4 and 16: they meet half way, at 8.
    level, rate = crossing([4, 16], [300, 500], [200, 600])
    assert level == pytest.approx(8)
    assert rate == pytest.approx(400)
    assert crossing([4, 16], [300, 500], [200, 400]) is None
    assert crossing([4], [1], [2]) is None
