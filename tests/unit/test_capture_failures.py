"""A capture that fails: refused or done without, as configured, and told in words."""

import gc
import weakref

import pytest

from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.errors import CaptureError


class HalfBuilt:
    """Graphs that a failing capture leaves behind."""


def fails():
    raise Exception("Capture cuda graph failed: out of memory")


def test_what_was_captured_comes_back():
    failures = CaptureFailures("refuse")

    assert failures.attempt("graphs", lambda: "captured") == "captured"
    assert failures.reasons == []


def test_refusing_names_what_why_and_the_ways_out():
    with pytest.raises(CaptureError) as error:
        CaptureFailures("refuse").attempt("the plain decode graphs", fails)

    message = str(error.value)
    assert message.startswith("capturing the plain decode graphs failed: expected room for graphs")
    assert "got Exception: Capture cuda graph failed: out of memory" in message
    assert "--speculative-capture-failure eager or --speculative-dynamic always" in message
    assert "--mem-fraction-static" in message


def test_going_on_without_is_told(caplog):
    failures = CaptureFailures("eager")

    assert failures.attempt("the plain decode graphs", fails) is None
    assert failures.reasons == [
        "the plain decode graphs: Exception: Capture cuda graph failed: out of memory"
    ]
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "Without the plain decode graphs" in record.getMessage()
    assert "out of memory" in record.getMessage()


def test_what_cannot_be_done_without_is_refused_in_any_case():
    with pytest.raises(CaptureError) as error:
        CaptureFailures("eager").attempt("the attention", fails, required=True)
    assert "eager" not in str(error.value)


def test_what_was_half_captured_is_given_back_before_the_server_goes_on():
    alive = []

    def fails_half_way():
        half = HalfBuilt()
        half.itself = half  # as graphs and their runner know each other
        alive.append(weakref.ref(half))
        raise RuntimeError("out of memory")

    gc.disable()
    try:
        CaptureFailures("eager").attempt("graphs", fails_half_way)
        assert alive[0]() is None
    finally:
        gc.enable()
