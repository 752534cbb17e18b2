"""Calibrations on disk: whole, of this machine and model, or refused."""

import json
from dataclasses import replace

import pytest

from sglang_specv2.calibration.file import Calibration, Subject, read, write
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy import CostModel, Point

SUBJECT = Subject(
    gpu="NVIDIA H200",
    gpu_count=1,
    sglang="0.5.17",
    torch="2.11.0",
    attention_backend="TritonAttnBackend",
    model="LlamaForCausalLM 0123456789ab",
    draft="LlamaForCausalLMEagle3 ba9876543210",
    dtype="bfloat16",
    kv_cache_dtype="bfloat16",
    quantization=None,
    draft_quantization=None,
    num_steps=2,
    topk=1,
    num_draft_tokens=3,
    draft_sync="kv",
    capture_sizes=(1, 2, 4),
)
COST = CostModel([Point(1, context, {0: 5e-3, 2: 8e-3}) for context in (100, 1000)], 1e-3)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "calibration.json"
    write(path, Calibration(COST, {"date": "2026-01-01"}), SUBJECT)
    return path


def test_what_was_written_is_read(file):
    cost, provenance = read(file, SUBJECT)
    assert cost.points == COST.points
    assert provenance == {"date": "2026-01-01"}
    assert json.loads(file.read_text())["provenance"] == {"date": "2026-01-01"}
    assert [path.name for path in file.parent.iterdir()] == ["calibration.json"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"gpu": "NVIDIA A100"}, "got one of gpu NVIDIA H200, not NVIDIA A100"),
        ({"model": "LlamaForCausalLM f"}, "model LlamaForCausalLM 0123456789ab, not"),
        ({"gpu_count": 2}, "gpu_count 1, not 2"),
        ({"quantization": "fp8"}, "quantization None, not fp8"),
        ({"attention_backend": "FlashAttentionBackend"}, "attention_backend TritonAttnBackend"),
        ({"capture_sizes": (1, 2)}, "capture_sizes (1, 2, 4), not (1, 2)"),
    ],
)
def test_one_of_another_machine_or_model_is_refused(file, change, words):
    with pytest.raises(ConfigError) as error:
        read(file, replace(SUBJECT, **change))
    assert words in str(error.value)
    assert "sglang-specv2 calibrate" in str(error.value)


def test_every_difference_is_named(file):
    with pytest.raises(ConfigError, match="gpu NVIDIA H200, not X; topk 1, not 4"):
        read(file, replace(SUBJECT, gpu="X", topk=4))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_refused(file, share):
    text = file.read_text().rstrip()
    file.write_text(text[: int(len(text) * share)])
    with pytest.raises(ConfigError, match="expected whole JSON, got a broken file"):
        read(file, SUBJECT)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: [data], "expected format 1, got list"),
        (lambda data: data | {"format": 2}, "expected format 1, got 2"),
        (lambda data: data | {"subject": {"gpu": "x"}}, "expected what it was measured on"),
        (
            lambda data: data | {"subject": data["subject"] | {"capture_sizes": None}},
            "expected what it was measured on",
        ),
        (lambda data: data | {"step_times": None}, "step times: expected points"),
        (lambda data: data | {"step_times": {"points": [], "resume_s": 0}}, "at least one batch"),
    ],
)
def test_other_content_is_refused(file, change, words):
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    with pytest.raises(ConfigError) as error:
        read(file, SUBJECT)
    assert words in str(error.value)
    assert str(file) in str(error.value)


def test_no_file_is_said(tmp_path):
    with pytest.raises(ConfigError, match="expected a file, got No such file"):
        read(tmp_path / "none.json", SUBJECT)


def test_no_place_to_write_is_said(tmp_path):
    with pytest.raises(ConfigError, match="expected a place to write to"):
        write(tmp_path / "no" / "folder.json", Calibration(COST, {}), SUBJECT)
