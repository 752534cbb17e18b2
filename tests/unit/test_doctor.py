import sys
from importlib.metadata import PackageNotFoundError
from types import ModuleType

import pytest
import stock_sglang

from sglang_specv2 import compat, gpus
from sglang_specv2.cli import doctor, features, main
from sglang_specv2.cli.report import Report, State
from sglang_specv2.config import SpecV2Config
from sglang_specv2.cpu.seams import CPU_LEDGER
from sglang_specv2.seams import LEDGER

DOCTOR = [sys.executable, "-W", "ignore", "-m", "sglang_specv2.cli.main", "doctor"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return stock_sglang.entry_points(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def flags(tmp_path_factory):
    target, draft = stock_sglang.model_folders(tmp_path_factory.mktemp("models"))
    return [
        *("--model-path", str(target), "--device", "cpu", "--skip-tokenizer-init"),
        *("--speculative-algorithm", "EAGLE3", "--speculative-draft-model-path", str(draft)),
        *("--speculative-num-steps", "2", "--speculative-eagle-topk", "1"),
        *("--speculative-num-draft-tokens", "3"),
    ]


def test_everything_in_order(plugin, flags):
    done = stock_sglang.run(
        [*DOCTOR, "--no-gpu", *flags, "--speculative-disable-batch-threshold", "64"],
        stock_sglang.environment(plugin),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "sglang 0.5.17 (supported: 0.5.17)",
        f"all {len(compat.ledger(cpu_engine=True))} as expected",
        "flags and keywords: in place",
        "choice of the worker: in place",
        "dynamic speculation: yes",
        "speculates up to 64 requests; once above, again from 56 down",
        "64 is never crossed",
        "draft sync while not speculating: kv",
        "Everything is in order.",
    ):
        assert words in done.stdout


def test_what_is_wrong_is_said_and_exits_1(flags):
    done = stock_sglang.run(
        [*DOCTOR, "--no-gpu", *flags, "--pp-size", "2", "--speculative-dynamic", "never"],
        stock_sglang.environment(SGLANG_PLUGINS="another"),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "--speculative-dynamic: refused at start" in done.stdout
    assert "--pipeline-parallel-size 2: a mode would" in done.stdout
    assert done.stdout.count("PROBLEM") == 2
    assert done.stdout.endswith("2 problems.\n")


def test_wrong_flags_are_said(plugin, flags):
    done = stock_sglang.run(
        [*DOCTOR, "--no-gpu", *flags, "--speculative-disable-batch-threshold", "abc"],
        stock_sglang.environment(plugin),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "expected a whole number, at least 1, got 'abc'" in done.stdout


def test_explain(capsys):
    text = "…tensor a (160) must match the size of tensor b (2)…"
    argv = ["doctor", "--explain", text, "--speculative-num-draft-tokens", "16"]
    assert main.main(argv) == 0
    assert "160 = 10 requests × 16 draft tokens" in capsys.readouterr().out
    assert main.main(["doctor", "--explain", "out of memory"]) == 2
    assert "expected a shape error" in capsys.readouterr().err


def test_report():
    report = Report()
    report.add("first", State.OK, "one")
    report.add("first", State.NOTE, "two\nlines")
    report.add("second", State.PROBLEM, "three")
    assert report.problems == 1
    assert str(report) == (
        "first\n"
        "  ok       one\n"
        "  note     two\n"
        "           lines\n"
        "\n"
        "second\n"
        "  PROBLEM  three\n"
        "\n"
        "1 problem."
    )


def states(report, words):
    return [state for _, state, text in report.lines if words in text]


@pytest.mark.parametrize(("gpu_expected", "state"), [(True, State.PROBLEM), (False, State.NOTE)])
def test_missing_packages(monkeypatch, gpu_expected, state):
    def version(name):
        if name in ("sglang-kernel", "torch"):
            raise PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor, "version", version)
    report = Report()
    doctor._versions(report, gpu_expected)
    assert states(report, "sglang-kernel is not installed") == [state]
    assert states(report, "torch is not installed") == [State.PROBLEM]


@pytest.mark.parametrize("installed", [None, "0.5.18"])
def test_another_sglang(monkeypatch, installed):
    monkeypatch.setattr(compat, "installed_version", lambda: installed)
    report = Report()
    doctor._versions(report, False)
    assert states(report, f"sglang {installed or 'not installed'} ") == [State.PROBLEM]


@pytest.mark.parametrize("on_cpu", [False, True])
def test_seam_differences(monkeypatch, on_cpu):
    looked_at = []

    def check(names):
        looked_at.extend(names)
        return ["create_worker: not found"]

    monkeypatch.setattr(compat, "check", check)
    report = Report()
    doctor._seams(report, on_cpu)
    assert report.lines == [(report.lines[0][0], State.PROBLEM, "create_worker: not found")]
    assert looked_at == [*LEDGER, *(CPU_LEDGER if on_cpu else ())]


def test_switched_off(monkeypatch):
    monkeypatch.setenv("SGLANG_SPECV2", "0")
    report = Report()
    assert not doctor._patches(report, False)
    assert states(report, "switched off: SGLANG_SPECV2=0") == [State.PROBLEM]


class Nvml(ModuleType):
    """nvidia-ml-py as far as it is used, for a machine with one GPU."""

    class NVMLError(Exception):
        pass

    class Memory:
        total, free = 141 * 2**30, 140 * 2**30

    def __init__(self, count=1, fails=None):
        super().__init__("pynvml")
        self.count, self.fails, self.open = count, fails, 0
        self.readings, self.names = {}, {}

    def __getattr__(self, name):
        if name == self.fails:
            raise_ = self.NVMLError("Driver Not Loaded")

            def fail(*args):
                raise raise_

            return fail
        if name.startswith("nvmlClocksThrottleReason"):
            return {"SwPowerCap": 4, "HwSlowdown": 8}.get(
                name.removeprefix("nvmlClocksThrottleReason"), 0
            )
        if name == "NVML_CLOCK_SM":
            return 1
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def not_supported(*args):
            raise self.NVMLError("Not Supported")

        return self.readings.get(name) or {
            "nvmlInit": lambda: setattr(self, "open", self.open + 1),
            "nvmlShutdown": lambda: setattr(self, "open", self.open - 1),
            "nvmlDeviceGetCount": lambda: self.count,
            "nvmlSystemGetDriverVersion": lambda: "580.1",
            "nvmlDeviceGetHandleByIndex": self.by_index,
            "nvmlDeviceGetHandleByUUID": lambda uuid: int(uuid.removeprefix("GPU-")),
            "nvmlDeviceGetMemoryInfo": lambda handle: self.Memory,
            "nvmlDeviceGetName": lambda handle: self.names.get(handle, b"NVIDIA H200"),
        }.get(name, not_supported)

    def by_index(self, index):
        if index >= self.count:
            raise self.NVMLError("Invalid Argument")
        return index


def test_gpus(monkeypatch):
    nvml = Nvml(count=2)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    report = Report()
    doctor._gpus(report, True)
    assert [text for _, _, text in report.lines] == [
        "NVIDIA H200, 140.0 of 141.0 GiB free, driver 580.1"
    ] * 2
    assert report.problems == 0
    assert nvml.open == 0


def test_power_and_clocks_and_what_holds_them_back(monkeypatch):
    nvml = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    (gpu,) = gpus.find()
    assert (gpu.power_w, gpu.sm_mhz, gpu.throttled) == (None, None, ())

    nvml.readings = {
        "nvmlDeviceGetPowerUsage": lambda handle: 650_500,
        "nvmlDeviceGetEnforcedPowerLimit": lambda handle: 700_000,
        "nvmlDeviceGetClockInfo": lambda handle, kind: 1200,
        "nvmlDeviceGetMaxClockInfo": lambda handle, kind: 1980,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4 | 1,
    }
    (gpu,) = gpus.find()
    assert (gpu.power_w, gpu.power_limit_w) == (650.5, 700.0)
    assert (gpu.sm_mhz, gpu.max_sm_mhz) == (1200, 1980)
    assert gpu.throttled == ("SwPowerCap",)


@pytest.mark.parametrize(
    ("named", "names"),
    [
        (None, ["first", "second", "third"]),
        ("2", ["third"]),
        ("GPU-1, 0", ["second", "first"]),
    ],
)
def test_gpus_that_this_process_may_use(monkeypatch, named, names):
    nvml = Nvml(count=3)
    nvml.names = {0: b"first", 1: b"second", 2: b"third"}
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    environ = {} if named is None else {"CUDA_VISIBLE_DEVICES": named}
    assert [gpu.name for gpu in gpus.visible(environ)] == names


@pytest.mark.parametrize("named", ["", "7"])
def test_none_that_it_may_use(monkeypatch, named):
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(count=3))
    with pytest.raises(gpus.NoGpuError):
        gpus.visible({"CUDA_VISIBLE_DEVICES": named})


def test_a_clock_that_is_held_down_in_words():
    reading = {"name": "NVIDIA H200", "sm_mhz": 1200, "max_sm_mhz": 1980}
    assert gpus.held_back(reading | {"throttled": ()}) is None
    assert gpus.held_back(reading | {"throttled": ("SwPowerCap", "SyncBoost")}) == (
        "NVIDIA H200 is held back by SwPowerCap, SyncBoost at 1200 of 1980 MHz"
    )


@pytest.mark.parametrize(
    ("nvml", "why"),
    [
        (Nvml(fails="nvmlInit"), "no NVIDIA driver answers"),
        (Nvml(fails="nvmlDeviceGetCount"), "the NVIDIA driver fails"),
        (Nvml(count=0), "lists no GPU"),
        (None, "nvidia-ml-py is not installed"),
    ],
)
def test_no_gpu(monkeypatch, nvml, why):
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(gpus.NoGpuError, match=why):
        gpus.find()
    assert nvml is None or nvml.open == 0
    report = Report()
    doctor._gpus(report, True)
    assert report.problems == 1
    report = Report()
    doctor._gpus(report, False)
    assert report.problems == 0


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (SpecV2Config(), "speculates where it is estimated to be faster by 2%"),
        (SpecV2Config(calibration="h200.json"), "step times: h200.json"),
        (SpecV2Config(dynamic="always"), "always speculates"),
        (SpecV2Config(dynamic="never"), "never speculates"),
        (SpecV2Config(dynamic="threshold", disable_batch_threshold=16), "up to 16 requests"),
        (SpecV2Config(test_schedule="every:2"), "every:2"),
    ],
)
def test_policy_in_words(config, words):
    assert words in features.describe(config)
