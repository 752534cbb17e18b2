"""The smoke size with real servers on the CPU engine, one for each kind of worker."""

import math
import os
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sglang_specv2.benchmark.alignment import JOIN_TOKENS
from sglang_specv2.benchmark.results import RECOVERY, ROUNDS, STARTS, TIMELINE, Results
from sglang_specv2.benchmark.tables import Comparison, recovery_figures

ROOT = Path(__file__).resolve().parents[2]
ARMS = ("none", "stock", "adaptive-cold", "threshold")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke")
    began = datetime.now(timezone.utc)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "sglang_specv2.cli.main", "bench", "--size", "smoke"),
            *("--out", str(folder / "result"), "--arms", *ARMS, "--note", "a test"),
            *("--levels", "1", "8", "--timeline-s", "3", "--recovery-requests", "4"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Results.existing(folder / "result"), began


def test_every_number_is_finite_and_from_this_run(smoke):
    results, began = smoke
    rounds = results.lines(ROUNDS)
    assert {(line["arm"], line["level"]) for line in rounds} == {
        (arm, level) for arm in ARMS for level in (1, 8)
    }
    for line in rounds:
        numbers = [value for value in line.values() if isinstance(value, int | float)]
        assert all(math.isfinite(number) for number in numbers)
        assert line["output_tokens"] == 48 * line["level"]
        assert datetime.fromisoformat(line["at"]) >= began.replace(microsecond=0)
    assert all(line["start_s"] > 0 for line in results.lines(STARTS))


def test_the_switching_arm_switched_at_its_threshold(smoke):
    results, _ = smoke
    by_level = {line["level"]: line for line in results.lines(ROUNDS) if line["arm"] == "threshold"}
    assert by_level[1]["steps_plain"] == 0
    assert by_level[1]["accept_length"] > 1.2
    # The batch grows to 8 and is plain then; while it grows and falls it may speculate.
    assert by_level[8]["steps_plain"] > by_level[8]["steps_speculative"]
    modes = {line["mode"] for line in results.lines(TIMELINE) if line["arm"] == "threshold"}
    assert {"plain", "speculative"} <= modes


def test_recovery_was_read_step_by_step(smoke):
    results, _ = smoke
    found = {figure.arm: figure for figure in recovery_figures(Comparison(results))}
    assert set(found) == {"stock", "adaptive-cold", "threshold"}
    for figure in found.values():
        assert figure.requests >= 2
        assert 1 < figure.first.value <= 3
        # Those that matter may join late where other work keeps the cores busy.
        assert figure.plain_tokens >= 48 - JOIN_TOKENS
    lengths = {
        tokens for line in results.lines(RECOVERY) for steps in line["steps"] for tokens in steps
    }
    assert lengths == {1, 2, 3}


def test_the_report_says_that_its_speed_means_nothing(smoke):
    results, _ = smoke
    report = (results.folder / "report.md").read_text()
    assert "speeds in this report mean nothing" in report
    assert "a test" in report
    assert "## Not measured" not in report
    for name in ("throughput", "timeline-ramp", "recovery"):
        assert "CPU ENGINE" in (results.folder / f"{name}.svg").read_text()
        assert (results.folder / f"{name}.png").stat().st_size > 10_000
