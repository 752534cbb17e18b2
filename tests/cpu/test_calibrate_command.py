"""``sglang-specv2 calibrate``: a file with step times, what they are of, and the circumstances."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_server import ROOT

FAKE_GPU = Path(__file__).parents[1] / "benchmark" / "fake_gpu"


def calibrate(*arguments):
    """Beside a GPU that is only told of, and that is held back."""
    return subprocess.run(
        [sys.executable, "-m", "sglang_specv2.cli.main", "calibrate", "--cpu", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (FAKE_GPU, ROOT)))},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory):
    file = tmp_path_factory.mktemp("calibration") / "here.json"
    done = calibrate("--out", str(file), "--max-running-requests", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text()), done


def test_it_says_what_it_measured(calibrated):
    content, done = calibrated
    sizes = {point["batch_size"] for point in content["step_times"]["points"]}
    assert sizes == {1, 4}
    for size in sizes:
        points = [p for p in content["step_times"]["points"] if p["batch_size"] == size]
        assert len({point["context_tokens"] for point in points}) == 2
        assert all(set(point["step_s"]) == {"0", "2"} for point in points)
    assert "pays from accept length" in done.stdout
    assert "Timing both modes" in done.stderr, "progress"


def test_it_holds_what_it_is_of_and_how_the_machine_was(calibrated):
    content, done = calibrated
    assert {"gpu", "gpu_count", "sglang", "torch", "attention_backend", "model", "draft"} <= set(
        content["subject"]
    )
    assert {"date", "commit", "python", "gpus"} == set(content["provenance"])
    (gpu,) = content["provenance"]["gpus"]
    assert (gpu["driver"], gpu["power_w"], gpu["sm_mhz"]) == ("580.1", 300.0, 1500)
    assert "careful: Fake GPU is held back by SwPowerCap at 1500 of 1980 MHz" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--speculative-dynamic=never"], "--speculative-dynamic: expected none"),
        (["--speculative-calibration", "x.json"], "got a file of step times"),
        (["--out", "no/such/folder.json"], "got no no/such"),
        (["--out", "."], "expected the name of a file, got a folder"),
    ],
)
def test_what_leaves_nothing_to_measure_is_refused(arguments, words):
    done = calibrate(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
