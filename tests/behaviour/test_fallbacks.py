"""What cannot be captured, and a server that is asked to end: words, right tokens, nothing left."""

import time

import pytest
from live_server import ServerError
from worker_scenarios import of_many_lengths, serve

NEVER = ("--speculative-dynamic", "never")
FAILS = {"SPECV2_PROBE_FAULT": "capture_fails"}
PLANTED = "planted: CUDA out of memory"


def test_a_capture_that_fails_refuses_the_start(start_probed):
    with pytest.raises(ServerError, match="ended with") as error:
        start_probed(*NEVER, env=FAILS)

    told = str(error.value)
    assert "CaptureError: capturing the plain decode graphs failed" in told
    assert PLANTED in told
    assert "--speculative-capture-failure eager" in told


@pytest.fixture(scope="module")
def eager(start_probed):
    return start_probed(*NEVER, "--speculative-capture-failure", "eager", env=FAILS)


def test_as_configured_the_server_starts_with_eager_plain_steps_and_says_so(eager, texts, runs):
    before = eager.state()
    outcome = serve(eager, of_many_lengths(texts[:5], 20, 50), runs)
    after = eager.state()
    eager.wait_until_idle()

    outcome.require_right()
    (failure,) = after["capture_failures"]
    assert failure.startswith("the plain decode graphs: ")
    assert PLANTED in failure
    log = eager.log.read_text()
    assert log.count("Without the plain decode graphs, those steps run eagerly") == 1
    plain = sum(not step.speculative for step in outcome.steps)
    assert after["steps"].get("plain_eager", 0) - before["steps"].get("plain_eager", 0) == plain
    assert "plain" not in after["steps"]
    assert log.count("A decode step runs without a CUDA graph") <= 1


def test_asked_to_end_during_switches(eager, texts):
    """What runs is answered to its end, and no process is left."""
    eager.schedule("1s 1p")
    waiting = [eager.submit(text.prompt, max_new_tokens=120) for text in texts[:5]]
    time.sleep(0.3)
    switched = sum(eager.state()["switches"].values())
    status = eager.terminate()

    assert [future.result().token_ids for future in waiting] == [
        text.answer[:120] for text in texts[:5]
    ]
    assert switched > 0
    assert status in (0, -9), "SGLang ends its own processes so, once nothing runs"
    assert "Gracefully exiting... Remaining number of requests 0" in eager.log.read_text()
    deadline = time.monotonic() + 10
    while eager.processes_left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not eager.processes_left()
    assert "Traceback" not in eager.log.read_text()
