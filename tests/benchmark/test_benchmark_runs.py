"""Whole runs of the command against servers that start at once, with faults planted in some."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from sglang_specv2.benchmark import runner
from sglang_specv2.benchmark.results import RECOVERY, ROUNDS, STARTS, TIMELINE, Results
from sglang_specv2.cli import bench
from sglang_specv2.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
FAKE = Path(__file__).resolve().parent / "fake_sglang"
FAKE_GPU = Path(__file__).resolve().parent / "fake_gpu"
QUICK = (
    *("--size", "smoke", "--timeline-s", "1", "--levels", "1", "4", "--output-tokens", "24"),
    "--recovery",  # none: words need a tokenizer, which takes longer to load than all the rest
)


def command(out, *options):
    return [sys.executable, "-m", "sglang_specv2.cli.main", "bench", "--out", str(out), *options]


def environment(faults, gpu):
    fakes = [FAKE, FAKE_GPU] if gpu else [FAKE]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [*fakes, ROOT])),
        "FAKE_FAULTS": json.dumps(faults),
    }


def start(folder, *options, faults=None, gpu=False):
    """The command with ``folder`` as its working directory, which its servers inherit."""
    return subprocess.Popen(
        command(folder / "result", *options),
        cwd=folder,
        env=environment(faults or {}, gpu),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def processes_in(folder):
    return [p for p in psutil.process_iter(["cwd"]) if p.info["cwd"] == str(folder)]


def wait_until(condition, timeout_s=60):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


FAULTS = {
    "stock": "crash",
    "adaptive-cold": "hang",
    "auto": "no_start",
    "threshold": "other_worker",
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """A run in which four of six arms fail, each in its own way."""
    folder = tmp_path_factory.mktemp("faulty")
    run = start(folder, *QUICK, "--round-timeout", "4", "--rounds", "2", faults=FAULTS)
    output, _ = run.communicate(timeout=120)
    return folder, run.returncode, output


def test_the_others_go_on(faulty):
    folder, status, output = faulty
    assert status == 1, output
    results = Results.existing(folder / "result")
    measured = {(line["arm"], line["level"], line["round"]) for line in results.lines(ROUNDS)}
    sound = {(a, c, r) for a in ("none", "adaptive-warm") for c in (1, 4) for r in (0, 1)}
    assert sound <= measured
    assert {line["arm"] for line in results.lines(TIMELINE)} == {"none", "adaptive-warm"}


@pytest.mark.parametrize(
    ("arm", "words", "log"),
    [
        ("stock", "the server ended with status 3", "FATAL: planted crash"),
        ("adaptive-cold", "hangs: ", "planted hang"),
        ("auto", "the server ended with status 1", "planted: no start"),
        ("threshold", "expected sglang-specv2's worker, found SGLang's own", "fake threshold"),
    ],
)
def test_a_failure_is_told_with_the_end_of_its_log(faulty, arm, words, log):
    folder, _, output = faulty
    (line,) = [
        line
        for line in Results.existing(folder / "result").lines(STARTS)
        if line["arm"] == arm and line["error"]
    ]
    report = (folder / "result" / "report.md").read_text()
    assert words in line["error"]
    assert log in line["log_tail"]
    assert log in report
    assert f"FAILED {arm}: " in output


def test_a_failed_run_leaves_no_process(faulty):
    assert processes_in(faulty[0]) == []


def test_interrupted_it_leaves_no_process_keeps_what_it_has_and_goes_on(tmp_path):
    options = (*QUICK, "--arms", "none", "threshold")
    results = Results(tmp_path / "result")
    run = start(tmp_path, *options, "--rounds", "50")
    try:
        wait_until(lambda: len(results.lines(ROUNDS)) >= 5 or run.poll() is not None)
        run.send_signal(signal.SIGINT)
        output, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 130, output
    assert processes_in(tmp_path) == []
    kept = results.lines(ROUNDS)
    assert len(kept) >= 5
    assert "Interrupted; what was measured is kept" in output
    report = (results.folder / "report.md").read_text()
    assert "of 50 rounds" in report

    again = start(tmp_path, *options, "--rounds", "4")
    output, _ = again.communicate(timeout=60)
    assert again.returncode == 0, output
    lines = results.lines(ROUNDS)
    assert lines[: len(kept)] == kept
    assert {(line["arm"], line["level"], line["round"]) for line in lines} >= {
        (arm, level, number)
        for arm in ("none", "threshold")
        for level in (1, 4)
        for number in range(4)
    }
    assert "## Not measured" not in (results.folder / "report.md").read_text()


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """One server after the other on a fake GPU, with arrivals of both kinds."""
    folder = tmp_path_factory.mktemp("turn")
    run = start(
        folder,
        *("--size", "quick", "--shape", "tiny", "--rounds", "1", "--output-tokens", "24"),
        *("--arms", "none", "threshold", "off", "--threshold", "4", "--levels", "1", "4"),
        *("--rates", "20", "--poisson-s", "0.5"),
        *("--timeline", "ramp", "square", "--timeline-s", "2", "--timeline-rounds", "2"),
        *("--recovery", "48", "--recovery-arms", "stock", "threshold"),
        *("--recovery-requests", "6", "--recovery-matter", "2", "--attention-backend", "fa3"),
        gpu=True,
    )
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    return Results.existing(folder / "result")


def test_in_turn_one_server_is_up_at_a_time(in_turn):
    at = [(line["arm"], line["at"]) for line in in_turn.lines(STARTS)]
    assert [arm for arm, _ in at] == ["none", "threshold", "off", "stock", "threshold-recovery"]
    measured = [line["arm"] for line in in_turn.lines(ROUNDS)]
    assert measured == sorted(measured, key=["none", "threshold", "off"].index)


def test_a_round_holds_what_was_counted_in_it(in_turn):
    rounds = {(line["arm"], line["load"], line["level"]): line for line in in_turn.lines(ROUNDS)}
    small, large = rounds["threshold", "closed", 1], rounds["threshold", "closed", 4]
    assert small["output_tokens"] == 24
    assert large["output_tokens"] == 4 * 24
    # The fake server speculates up to 4 requests and accepts one draft a step.
    assert small["accept_length"] == large["accept_length"] == 2
    assert small["steps_plain"] == 0
    assert small["steps_speculative"] == 12
    assert small["switches"] == 0
    off = rounds["off", "closed", 4]
    assert off["steps_speculative"] == 0
    assert off["plain_tokens"] == 4 * 23
    assert off["accept_length"] is None
    assert "steps_plain" not in rounds["none", "closed", 1]
    assert rounds["none", "poisson", 20.0]["requests"] == 10
    for line in rounds.values():
        expected = line["output_tokens"] / line["seconds"]
        assert line["output_tokens_s"] == pytest.approx(expected)
        assert 0 < line["ttft_ms_p50"] <= line["ttft_ms_p99"]
        assert 0 <= line["itl_ms_p50"] <= line["itl_ms_p95"] <= line["itl_ms_p99"]
        assert line["energy_j"] == 24
        assert line["joules_per_token"] == 24 / line["output_tokens"]
        assert line["peak_memory_bytes"] == 3e9


def test_the_machine_is_told(in_turn):
    gpu = in_turn.provenance()["runs"][0]["gpu"]
    assert gpu == {
        "name": "Fake GPU",
        "driver": "580.1",
        "power_limit_w": 700,
        "sm_clock_mhz": 1500,
        "max_sm_clock_mhz": 1980,
    }
    report = (in_turn.folder / "report.md").read_text()
    assert "Fake GPU; fa3 attention; tiny shape; random ids: 128 tokens in, 24 tokens out" in report
    assert "| none | " in report
    assert " | 1.50 | 2.50 | 0.75 | 3.0 |" in report


def test_recovery_counts_plain_tokens_and_steps(in_turn):
    by_arm = {}
    for line in in_turn.lines(RECOVERY):
        by_arm.setdefault(line["arm"], []).append(line)
    assert {arm: len(lines) for arm, lines in by_arm.items()} == {"stock": 3, "threshold": 3}
    for line in by_arm["threshold"]:
        assert line["merged"] == 0
        assert all(set(steps) == {2} for steps in line["steps"])
        # Those that matter join a little after the fillers, which have 32 tokens to spare.
        assert all(40 <= tokens <= 90 for tokens in line["plain_tokens"])


def test_the_wave_shows_clients_and_modes(in_turn):
    lines = [
        line
        for line in in_turn.lines(TIMELINE)
        if (line["arm"], line["timeline"]) == ("threshold", "ramp")
    ]
    assert {line["clients"] for line in lines} == {1, 2, 4}
    assert sorted({line["phase"] for line in lines}) == [0, 1, 2, 3, 4]
    assert {line["round"] for line in lines} == {0, 1}
    waves = [line for line in in_turn.lines(TIMELINE) if line["timeline"] == "square"]
    assert {line["clients"] for line in waves} == {1, 2}
    assert all(line["tokens_s"] > 0 for line in lines)
    none = [line for line in in_turn.lines(TIMELINE) if line["arm"] == "none"]
    assert {line["mode"] for line in none} == {None}


@pytest.mark.parametrize(
    ("limit_s", "told"),
    [("8", "left out, no time for more of none, C=4"), ("2", "left out, no time for: none")],
)
def test_a_time_limit_leaves_out_and_names_what_does_not_fit(
    tmp_path, monkeypatch, capsys, limit_s, told
):
    monkeypatch.setenv("PYTHONPATH", environment({}, gpu=False)["PYTHONPATH"])
    monkeypatch.setattr(runner, "_START_GUESS_S", 1.0)
    monkeypatch.setattr(runner, "_END_S", 1.0)
    monkeypatch.setattr(bench, "_interruptible", lambda: None)
    options = (*QUICK, "--arms", "none", "--rounds", "4000", "--timeline", "none")
    began = time.monotonic()
    assert main(["bench", "--out", str(tmp_path), *options, "--time-limit", limit_s]) == 0
    assert time.monotonic() - began < 30
    assert capsys.readouterr().out.count(told) == 1
    assert "of 4000 rounds" in (tmp_path / "report.md").read_text()


def test_an_unknown_flag_says_where_server_flags_go(tmp_path):
    run = start(tmp_path, *QUICK, "--page-size", "16")
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "bench does not know --page-size; flags of the servers go after `--`" in output
    assert not (tmp_path / "result").exists()


def test_side_by_side_an_arm_that_times_its_steps_starts_when_the_others_are_up(tmp_path):
    options = (*QUICK, "--arms", "auto", "none", "stock", "--rounds", "1", "--timeline", "none")
    run = start(tmp_path, *options)
    output, _ = run.communicate(timeout=120)
    assert run.returncode == 0, output
    results = Results.existing(tmp_path / "result")

    assert [line["arm"] for line in results.lines(STARTS)] == ["none", "stock", "auto"]
    measured = [line["arm"] for line in results.lines(ROUNDS) if line["level"] == 1]
    assert measured == ["auto", "none", "stock"], "in the order that was asked for"
