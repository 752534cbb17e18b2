"""The two clients and what is made of their requests; NVML where there is none."""

import asyncio
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace

import pytest

from sglang_specv2 import gpus
from sglang_specv2.benchmark import client, sglang_client, telemetry
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.records import RequestRecord, percentile, summarize


def test_a_round_is_summed_up_from_its_requests():
    records = [
        RequestRecord(10.0, [10.5, 11.0, 12.0], [1, 2, 1], accept_length=2.0, verifies=3),
        RequestRecord(11.0, [11.1, 14.0], [1, 1], accept_length=1.0, verifies=1),
        RequestRecord(11.0, error="500"),
    ]
    line = summarize(records)
    assert line["output_tokens"] == 6
    assert line["seconds"] == 4.0
    assert line["output_tokens_s"] == 1.5
    assert line["failed_requests"] == 1
    # Each request counts by its verifies.
    assert line["accept_length"] == (3 * 2.0 + 1 * 1.0) / 4
    assert line["ttft_ms_p50"] == pytest.approx(300)
    # The two tokens that came together waited 0.25 s each.
    waits = sorted([250, 250, 1000, 2900])
    assert line["itl_ms_p50"] == pytest.approx((waits[1] + waits[2]) / 2)


def test_a_round_without_tokens_is_no_round():
    with pytest.raises(ValueError, match=r"no tokens from 1 requests: \['refused'\]"):
        summarize([RequestRecord(0.0, error="refused")])


def test_percentiles_are_interpolated():
    assert percentile([1, 2, 3, 4], 50) == 2.5
    assert percentile([4, 1], 100) == 4
    assert percentile([7], 99) == 7
    assert percentile([], 50) is None


@dataclass
class Output:
    """As bench_serving's RequestFuncOutput."""

    start_time: float
    ttft: float = 0.0
    itl: list[float] = field(default_factory=list)
    output_len: int = 0
    success: bool = True
    spec_accept_length: float = 0.0
    error: str = ""


@pytest.fixture
def serving(monkeypatch):
    """SGLang's module, as far as it is used."""
    module = ModuleType("sglang.benchmark.serving")
    module.calls = []
    module.outputs = [
        Output(5.0, 0.5, [0.1, 0.1, 0.3], 5, spec_accept_length=2.5),
        Output(5.0, success=False, error="Traceback: refused"),
    ]

    async def request(request_func_input, pbar=None):
        return module.outputs[request_func_input]

    async def benchmark(**options):
        module.calls.append(options)
        print("Serving Benchmark Result")
        one = module.ASYNC_REQUEST_FUNCS[options["backend"]]
        await asyncio.gather(*[one(request_func_input=i) for i in range(2)])

    module.ASYNC_REQUEST_FUNCS = {"sglang": request}
    module.benchmark = benchmark
    module.set_global_args = lambda args: module.calls.append(args)
    datasets = ModuleType("sglang.benchmark.datasets")
    datasets.DatasetRow = lambda **row: SimpleNamespace(**row)
    for name in ("sglang", "sglang.benchmark"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(sys.modules, datasets.__name__, datasets)
    module.original = request
    return module


def run(serving, tmp_path, load):
    requests = [client.body([7, 8, 9], 32, {"ignore_eos": False})] * 2
    one = sglang_client.SglangClient(tmp_path / "log")
    return asyncio.run(one.run("http://127.0.0.1:1", load, requests, seed=1))


def test_sglangs_client_is_given_our_prompts_and_load(serving, tmp_path, capsys):
    run(serving, tmp_path, Load("closed", 16))
    arguments, options = serving.calls
    assert arguments.disable_ignore_eos
    assert options["max_concurrency"] == 16
    assert options["request_rate"] == float("inf")
    row = options["input_requests"][0]
    assert (row.prompt, row.prompt_len, row.output_len) == ([7, 8, 9], 3, 32)
    assert row.extra_request_body["sampling_params"]["max_new_tokens"] == 32
    assert serving.ASYNC_REQUEST_FUNCS["sglang"] is serving.original
    assert capsys.readouterr().out == ""
    assert "Serving Benchmark Result" in (tmp_path / "log").read_text()


def test_poisson_arrivals_are_a_rate(serving, tmp_path):
    run(serving, tmp_path, Load("poisson", 2.5))
    options = serving.calls[1]
    assert options["request_rate"] == 2.5
    assert options["max_concurrency"] is None


def test_what_sglangs_client_saw_becomes_our_records(serving, tmp_path):
    good, bad = run(serving, tmp_path, Load("closed", 2))
    assert good.tokens == 5
    assert good.ttft_s == 0.5
    assert good.inter_token_s() == pytest.approx([0.1, 0.1, 0.3])
    assert good.end_s == pytest.approx(6.0)
    assert good.accept_length == 2.5
    assert bad.error == "Traceback: refused"


def test_sglangs_client_that_cannot_be_imported_says_why(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sglang", None)
    with pytest.raises(sglang_client.NotAvailableError, match="sglang"):
        sglang_client.SglangClient(tmp_path / "log")


class Nvml(ModuleType):
    """pynvml with a GPU whose energy counter runs."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM = 1
    counts_energy = True

    def __init__(self):
        super().__init__("pynvml")
        self.millijoules = 1000.0

    def nvmlInit(self):
        pass

    nvmlShutdown = nvmlInit

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        if not self.counts_energy:
            raise self.NVMLError
        self.millijoules += 5000
        return self.millijoules

    def nvmlDeviceGetPowerUsage(self, handle):
        return 400_000

    def nvmlDeviceGetClockInfo(self, handle, clock):
        return 1980

    def nvmlDeviceGetMemoryInfo(self, handle):
        return SimpleNamespace(used=3 * 2**30)


@pytest.fixture
def nvml(monkeypatch):
    module = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(gpus, "find", lambda: [gpus.Gpu("NVIDIA H200", 1, 1, "580")])
    return module


def test_the_gpu_is_read_over_a_round(nvml):
    with telemetry.reading(telemetry.GpuMeter()) as readings:
        pass
    assert readings == telemetry.Readings(5.0, 400.0, 1980.0, 3 * 2**30)


@pytest.mark.parametrize(("device", "handle"), [("3", 3), ("GPU-1f", "GPU-1f")])
def test_the_gpu_is_the_one_that_is_served_on(nvml, monkeypatch, device, handle):
    asked = []
    monkeypatch.setattr(
        nvml, "nvmlDeviceGetPowerUsage", lambda handle: asked.append(handle) or 1000
    )
    assert telemetry.GpuMeter(device).power_w() == 1
    assert asked == [handle]


def test_a_gpu_that_does_not_count_energy_leaves_it_out(nvml):
    nvml.counts_energy = False
    with telemetry.reading(telemetry.GpuMeter()) as readings:
        pass
    assert readings.energy_j is None
    assert readings.power_w == 400


def test_without_a_gpu_nothing_is_zero():
    with telemetry.reading(None) as readings:
        pass
    assert readings == telemetry.Readings(None, None, None, None)
