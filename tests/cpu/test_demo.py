"""``make demo``: what it shows, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from live_server import ROOT

from sglang_specv2.demo.__main__ import HEADER, THRESHOLD, line
from sglang_specv2.demo.prompts import PROMPTS, SHOWN
from sglang_specv2.demo.server import Snapshot

BEFORE = Snapshot("speculative", 2, verifies=10, accepted_drafts=12, plain_tokens=5, switches=1)


def start(folder: Path) -> subprocess.Popen[str]:
    """The demo with ``folder`` as its working directory, which all of its processes inherit."""
    search = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", "sglang_specv2.demo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_in(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(folder):
            found.append(process)
    return found


def wait_until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_it_shows_both_modes_and_an_answer_and_ends_by_itself(tmp_path):
    demo = start(tmp_path)
    try:
        output, _ = demo.communicate(timeout=300)
    finally:
        demo.terminate()

    assert demo.returncode == 0, output
    table, _, rest = output.partition(HEADER)[2].partition("\n\n")
    rows = [row.split() for row in table.strip().splitlines()]
    clients, batches, modes, accept_lengths, switches = zip(
        *((int(row[1]), int(row[2]), row[3], row[4], int(row[6])) for row in rows), strict=True
    )
    assert (clients[0], max(clients), clients[-1]) == (1, 12, 1)
    assert max(batches) > THRESHOLD
    assert {"speculative", "plain"} == set(modes)
    assert modes[-1] == "speculative"
    assert switches[-1] >= 2
    assert max(float(length) for length in accept_lengths if length != "–") > 1.5
    answer = rest.partition(f"> {SHOWN}\n\n")[2].partition("\n\n")[0]
    assert len(answer) > 20
    assert "CPU mean nothing" in rest
    assert processes_in(tmp_path) == []


def test_interrupted_it_leaves_no_process(tmp_path):
    demo = start(tmp_path)
    try:
        # The demo, SGLang's launcher, its scheduler and one more.
        wait_until(lambda: len(processes_in(tmp_path)) > 3 or demo.poll() is not None)
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=60)
    finally:
        demo.kill()

    assert demo.returncode == 130, output
    assert processes_in(tmp_path) == []


def test_the_accept_length_of_a_second_comes_from_that_second():
    after = Snapshot("speculative", 2, verifies=14, accepted_drafts=18, plain_tokens=9, switches=1)

    assert after.accept_length_since(BEFORE) == pytest.approx(1 + 6 / 4)
    assert BEFORE.accept_length_since(BEFORE) is None
    assert after.tokens - BEFORE.tokens == 4 + 6 + 4


def test_a_line_draws_the_batch_to_the_threshold_and_past_it():
    plain = Snapshot("plain", THRESHOLD + 2, 10, 12, 5, 1)

    assert line(3, 8, plain, None).endswith("■" * THRESHOLD + "□□")
    assert line(3, 2, BEFORE, 2.5).endswith("2.50       27         1   ■■")


def test_the_shown_prompt_is_asked():
    assert SHOWN in PROMPTS
    assert len(set(PROMPTS)) == len(PROMPTS)
