import json

import pytest

from sglang_specv2.counters import StepCounters


def test_accept_length_is_drafts_and_bonus_over_verifies():
    counters = StepCounters()
    assert counters.accept_length is None

    counters.verified([2, 0, 1])
    counters.verified([2])

    assert (counters.verifies, counters.accepted_drafts) == (4, 5)
    assert counters.accept_length == pytest.approx(1 + 5 / 4)


def test_plain_steps_do_not_enter_the_accept_length():
    counters = StepCounters()
    counters.verified([1])
    counters.steps["plain"] += 10
    counters.plain_tokens += 40

    assert counters.accept_length == 2.0


def test_what_is_shown_is_a_copy_of_plain_types():
    counters = StepCounters()
    counters.steps["plain"] += 1
    shown = counters.as_dict()
    counters.steps["plain"] += 1
    counters.switches["plain"] += 1

    assert shown["steps"] == {"plain": 1}
    assert shown["switches"] == {}
    assert json.loads(json.dumps(shown)) == shown
