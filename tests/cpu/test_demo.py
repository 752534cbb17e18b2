"""``make demo``: what it shows, and that it leaves nothing behind."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from live_server import ROOT
from rich.console import Console

from sglang_specv2.demo import figure
from sglang_specv2.demo.__main__ import THRESHOLD
from sglang_specv2.demo.load import Load
from sglang_specv2.demo.prompts import PROMPTS, SHOWN
from sglang_specv2.demo.sample import Sample, Sampler, Snapshot
from sglang_specv2.demo.screen import Screen, picture
from sglang_specv2.demo.server import DemoError
from sglang_specv2.demo.view import HEADER, Lines, choose, line

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
    assert (tmp_path / "sglang-specv2-demo.svg").stat().st_size > 1000
    assert "Figure: sglang-specv2-demo.svg" in output
    table, _, rest = output.partition(HEADER)[2].partition("\n\n")
    rows = [row.split() for row in table.strip().splitlines()]
    clients, batches, modes, accept_lengths, rates, switches = zip(
        *((int(row[1]), int(row[2]), *row[3:5], int(row[5]), int(row[6])) for row in rows),
        strict=True,
    )
    assert (clients[0], max(clients), clients[-1]) == (1, 12, 1)
    assert max(batches) > THRESHOLD
    assert {"speculative", "plain"} == set(modes)
    assert modes[-1] == "speculative"
    assert switches[-1] >= 2
    assert max(float(length) for length in accept_lengths if length != "–") > 1.5
    assert max(rates) > 0
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
    # They are killed; how long the system takes to end them is its own affair.
    wait_until(lambda: processes_in(tmp_path) == [], timeout_s=10)


def test_a_sample_is_about_the_time_since_the_sample_before():
    after = Snapshot("speculative", 2, verifies=14, accepted_drafts=18, plain_tokens=9, switches=1)
    snapshots, times = iter([BEFORE, after, after]), iter([100.0, 102.0, 104.0])
    sampler = Sampler(lambda: next(snapshots), lambda: next(times))

    sample, still = sampler.take(3), sampler.take(3)

    assert sample == Sample(2.0, 3, after, accept_length=1 + 6 / 4, tokens_s=(4 + 6 + 4) / 2)
    assert still == Sample(4.0, 3, after, accept_length=None, tokens_s=0.0)


def sample(mode, batch_size, seconds=3.0, accept_length=None):
    state = Snapshot(mode, batch_size, 10, 12, 5, switches=1)
    return Sample(seconds, 8, state, accept_length, tokens_s=420.0)


def test_a_line_draws_the_batch_to_the_threshold_and_past_it():
    plain = sample("plain", THRESHOLD + 2)

    assert line(plain, THRESHOLD).endswith("–        420         1   " + "■" * THRESHOLD + "□□")
    assert line(sample("speculative", 2, accept_length=2.5), THRESHOLD).split() == [
        *("3", "8", "2", "speculative", "2.50", "420", "1", "■■")
    ]


def test_the_picture_shows_the_load_so_far_the_numbers_of_now_and_an_answer():
    console = Console(width=110, file=io.StringIO())
    samples = [sample("speculative", 4, accept_length=2.25), sample("plain", 9)]
    console.print(picture(samples, THRESHOLD, (SHOWN, "def longest(text):\n    return")))
    rows = console.file.getvalue().splitlines()

    drawn = [row[5:7] for row in rows if "█" in row]
    assert sum(row[0] == "█" for row in drawn) == 4
    assert sum(row[1] == "█" for row in drawn) == 9
    words = " ".join(" ".join(rows).split())
    for shown in (SHOWN, "return", "batch size 9", "accept length –", "tokens/s 420", "switches 1"):
        assert shown in words
    assert "of this CPU" in words


def test_the_screen_draws_over_itself():
    console = Console(width=110, height=40, force_terminal=True, file=io.StringIO())
    with Screen(THRESHOLD, console) as screen:
        screen.show(sample("speculative", 4), ("", ""))
        once = console.file.getvalue().count("\n")
        screen.show(sample("plain", 9), ("", ""))

    written = console.file.getvalue()
    assert "plain" in written
    assert written.count("\x1b[1A") >= once


def test_the_live_view_is_for_terminals(monkeypatch, capsys):
    assert isinstance(choose(THRESHOLD, plain=False), Lines)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert isinstance(choose(THRESHOLD, plain=False), Screen)
    assert isinstance(choose(THRESHOLD, plain=True), Lines)

    monkeypatch.setitem(sys.modules, "rich", None)
    assert isinstance(choose(THRESHOLD, plain=False), Lines)
    assert "rich is not installed" in capsys.readouterr().out


def test_the_figure_shades_the_modes_and_makes_no_claim(tmp_path):
    samples = [
        sample("speculative", 1, 1.0, 2.5),
        sample("speculative", 6, 2.0, 2.4),
        sample("plain", 9, 3.0),
        sample("speculative", 1, 4.0, 2.3),
    ]
    assert list(figure.spans(samples)) == [
        ("speculative", 0.0, 2.0),
        ("plain", 2.0, 3.0),
        ("speculative", 3.0, 4.0),
    ]
    assert str(tmp_path / "new" / "f.svg") in figure.save(
        samples, THRESHOLD, tmp_path / "new" / "f.svg"
    )
    drawn = (tmp_path / "new" / "f.svg").read_text()
    assert "No claim" in drawn
    assert figure.SHADES["plain"] in drawn


def test_without_matplotlib_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "matplotlib is not installed" in figure.save([], THRESHOLD, tmp_path / "f.svg")
    assert not (tmp_path / "f.svg").exists()


def test_the_first_client_s_answer_is_seen_while_it_is_written():
    seen = []

    def ask(prompt):
        for piece in ("def ", "f():"):
            yield piece
            seen.append(load.writing)
        load.resize(0)

    load = Load(ask, ["?"])
    load.resize(1)
    wait_until(lambda: "?" in load.answers, timeout_s=10)

    assert seen == [("?", "def "), ("?", "def f():")]
    assert load.answers == {"?": "def f():"}


def test_a_client_s_failure_ends_the_load():
    def ask(prompt):
        yield "def"
        raise DemoError("gone")

    load = Load(ask, ["?"])
    load.resize(2)
    wait_until(lambda: load.error is not None, timeout_s=10)

    assert str(load.error) == "gone"
    assert load.answers == {}


def test_the_shown_prompt_is_asked():
    assert SHOWN in PROMPTS
    assert len(set(PROMPTS)) == len(PROMPTS)
