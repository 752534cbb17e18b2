"""Where a starting server has its step times from, and that all ranks have the same."""

from types import SimpleNamespace

import pytest

from sglang_specv2.calibration import at_start
from sglang_specv2.calibration.file import Calibration
from sglang_specv2.config import SpecV2Config
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy import CostModel, Point


def cost(plain_ms):
    points = [Point(1, context, {0: plain_ms / 1e3, 2: 8e-3}) for context in (100, 1000)]
    return CostModel(points, 1e-3)


GPU = {"name": "NVIDIA H200", "sm_mhz": 1200, "max_sm_mhz": 1980}


@pytest.fixture
def machine(monkeypatch):
    """What rank 0 tells reaches the others; reading and measuring are noted."""
    machine = SimpleNamespace(told=None, read=0, written=[], throttled=(), refusal=None)

    def read(path, subject):
        machine.read += 1
        if machine.refusal:
            raise ConfigError(machine.refusal)
        return Calibration(cost(5), {"gpus": [GPU | {"throttled": machine.throttled}]})

    monkeypatch.setattr(at_start.file, "read", read)
    monkeypatch.setattr(at_start.file, "write", lambda *args: machine.written.append(args))
    monkeypatch.setattr(at_start, "subject_of", lambda worker: "subject")
    monkeypatch.setattr(at_start, "measure", lambda worker, *args: cost(5 + worker.ps.tp_rank))
    monkeypatch.setattr(
        at_start, "provenance", lambda: {"gpus": [GPU | {"throttled": machine.throttled}]}
    )
    return machine


def step_times(machine, rank, **settings):
    def broadcast(value, src):
        assert src == 0
        if rank == 0:
            machine.told = value
        return machine.told

    runner = SimpleNamespace(
        tp_group=SimpleNamespace(broadcast_object=broadcast), max_running_requests=8
    )
    worker = SimpleNamespace(
        ps=SimpleNamespace(tp_rank=rank),
        target_worker=SimpleNamespace(model_runner=runner),
        plain_runtime=SimpleNamespace(sizes=(1, 2)),
    )
    return at_start.step_times(worker, SpecV2Config(**settings), None, (0, 2))


def test_every_rank_has_what_rank_0_measured_and_rank_0_writes_it(machine):
    found = [step_times(machine, rank, calibration_out="out.json") for rank in (0, 1)]
    assert [times.step_s(0, 1, 100) for times in found] == [pytest.approx(5e-3)] * 2
    assert len(machine.written) == 1


def test_rank_0_alone_reads_a_file(machine):
    found = [step_times(machine, rank, calibration="here.json") for rank in (0, 1)]
    assert [times.step_s(0, 1, 100) for times in found] == [pytest.approx(5e-3)] * 2
    assert machine.read == 1


def test_a_file_that_is_refused_ends_every_rank(machine):
    machine.refusal = "expected one of this machine"
    for rank in (0, 1):
        with pytest.raises(ConfigError, match="expected one of this machine"):
            step_times(machine, rank, calibration="here.json")
    assert machine.read == 1


@pytest.mark.parametrize("settings", [{}, {"calibration": "here.json"}])
@pytest.mark.parametrize("throttled", [(), ("SwPowerCap",)])
def test_a_throttled_measurement_is_told_at_every_start_that_uses_it(
    machine, caplog, settings, throttled
):
    machine.throttled = throttled
    step_times(machine, 0, **settings)
    told = [record.getMessage() for record in caplog.records]
    assert told == (
        [
            "Step times were taken while NVIDIA H200 is held back by SwPowerCap at 1200 of 1980 "
            "MHz: calibrate again when it is not."
        ]
        if throttled
        else []
    )
