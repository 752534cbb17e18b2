"""Which chunks of a stream are taken for the steps after a switch."""

import pytest

from sglang_specv2.benchmark.alignment import WINDOW_STEPS, align
from sglang_specv2.benchmark.records import RequestRecord

PLAIN = 20
WINDOW = [2, 1, 3, 3, 1, 2, 2, 3, 1, 1, 3, 2]


def record(chunks, histogram, merge=()):
    """A stream with one chunk a second from 0 on; ``merge``: chunks sent with the one before."""
    times, sent = [], []
    for second, tokens in enumerate(chunks):
        if second in merge:
            sent[-1] += tokens
            times[-1] = float(second)
        else:
            sent.append(tokens)
            times.append(float(second))
    return RequestRecord(0.0, times, sent, accepted_histogram=histogram)


def histogram(*steps):
    return [sum(tokens == n for tokens in steps) for n in (1, 2, 3)]


def stream(window, *, ours, merge=()):
    """Prefill, plain steps, then ``window``; our worker counts no plain step as a verify."""
    counted = histogram(*window) if ours else histogram(*[1] * PLAIN, *window)
    return record([1, *[1] * PLAIN, *window], counted, merge)


FILLER = record([1] * (PLAIN - 1), None)
"""Ends at second 18, two steps before the first speculative one at 21."""


def test_our_workers_first_verify_is_the_first_step_though_it_accepted_nothing():
    window = [1, 1, *WINDOW]
    found = align([FILLER], [stream(window, ours=True)], PLAIN)
    assert found["steps"] == [window[:-1]]
    assert found["plain_tokens"] == [1 + PLAIN]
    assert found["lag_steps"] == 2
    assert found["merged"] == 0


def test_elsewhere_a_request_counts_from_behind_its_first_success():
    late, early = [1, 1, 3, *WINDOW], [1, 2, 1, *WINDOW]
    found = align([FILLER], [stream(late, ours=False), stream(early, ours=False)], PLAIN)
    assert found["steps"] == [WINDOW[:-1], [1, *WINDOW[:-1]]]
    assert found["plain_tokens"] == [1 + PLAIN + 5, 1 + PLAIN + 3]


def test_a_filler_s_end_that_is_seen_late_loses_no_step():
    late_filler = record([1] * (PLAIN + 6), None)
    found = align([late_filler], [stream(WINDOW, ours=False)], PLAIN)
    assert found["steps"] == [WINDOW[1:-1]]


@pytest.mark.parametrize("filler_tokens", [PLAIN - 1, 2 * PLAIN])
def test_never_off_starts_at_the_same_position_whenever_the_fillers_ended(filler_tokens):
    steps = [2, 3, 1, 2] * 10
    filler = record([1] * filler_tokens, None)
    found = align([filler], [record([1, *steps], histogram(*steps))], PLAIN)
    assert found["steps"] == [steps[10:-1]]
    assert found["plain_tokens"] == [22]


def test_the_window_is_cut():
    window = [2] * (WINDOW_STEPS + 30)
    found = align([FILLER], [stream(window, ours=True)], PLAIN)
    assert found["steps"] == [[2] * WINDOW_STEPS]


def test_a_short_last_chunk_is_the_length_s_doing():
    one = stream([*WINDOW, 3], ours=True)
    one.chunk_tokens[-1] = 1
    assert align([FILLER], [one], PLAIN)["merged"] == 0


def kept(ours):
    """Where the first step succeeded, SGLang's count from the one behind it."""
    return WINDOW[0 if ours else 1 : -1]


@pytest.mark.parametrize("ours", [True, False])
def test_two_steps_in_one_chunk_of_the_window_leave_the_request_out(ours):
    clean, merged = stream(WINDOW, ours=ours), stream(WINDOW, ours=ours, merge={PLAIN + 4})
    found = align([FILLER], [clean, merged], PLAIN)
    assert found["steps"] == [kept(ours)]
    assert found["merged"] == 1


@pytest.mark.parametrize("ours", [True, False])
def test_two_plain_steps_in_one_chunk_do_no_harm(ours):
    found = align([FILLER], [stream(WINDOW, ours=ours, merge={7, 8})], PLAIN)
    assert found["steps"] == [kept(ours)]
    assert found["merged"] == 0


def test_our_workers_requests_are_aligned_each_by_itself():
    """Also where plain steps of one of them came in one chunk on the way to the switch."""
    found = align(
        [FILLER], [stream(WINDOW, ours=True), stream(WINDOW, ours=True, merge={20})], PLAIN
    )
    assert found["steps"] == [WINDOW[:-1]] * 2
    assert found["plain_tokens"] == [1 + PLAIN] * 2


def test_without_the_server_s_histogram_nothing_is_believed():
    one = stream(WINDOW, ours=True)
    one.accepted_histogram = None
    assert align([FILLER], [one], PLAIN) == {
        "steps": [],
        "plain_tokens": [],
        "merged": 1,
        "lag_steps": None,
    }
