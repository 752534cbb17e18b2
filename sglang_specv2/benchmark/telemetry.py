"""What the GPU says of itself while a round runs, through NVML (nvidia-ml-py)."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sglang_specv2 import gpus

_PERIOD_S = 0.2


class GpuMeter:
    """One GPU from construction to :meth:`close`.

    Args:
        device: the GPU's number in the driver's order, or its UUID; as CUDA_VISIBLE_DEVICES has it.

    Raises:
        sglang_specv2.gpus.NoGpuError: there is none, or no driver answers.
    """

    def __init__(self, device: str = "0") -> None:
        gpus.find()
        import pynvml

        self._nvml: Any = pynvml
        pynvml.nvmlInit()
        self._handle = gpus.handle_of(pynvml, device)

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def energy_j(self) -> float | None:
        """Since the driver was loaded; None where the GPU does not count it."""
        millijoules = self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption, self._handle)
        return None if millijoules is None else millijoules / 1000

    def power_w(self) -> float | None:
        milliwatts = self._ask(self._nvml.nvmlDeviceGetPowerUsage, self._handle)
        return None if milliwatts is None else milliwatts / 1000

    def clock_mhz(self) -> float | None:
        """Of the streaming multiprocessors."""
        nvml = self._nvml
        clock = self._ask(nvml.nvmlDeviceGetClockInfo, self._handle, nvml.NVML_CLOCK_SM)
        return None if clock is None else float(clock)

    def used_bytes(self) -> float | None:
        """Of the GPU's memory, by everyone."""
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, self._handle)
        return None if memory is None else float(memory.used)

    def description(self) -> dict[str, Any]:
        """Name, driver, power limit and clocks, as they stand now."""
        nvml, handle = self._nvml, self._handle
        limit = self._ask(nvml.nvmlDeviceGetPowerManagementLimit, handle)
        maximum = self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM)
        return {
            "name": _text(self._ask(nvml.nvmlDeviceGetName, handle)),
            "driver": _text(self._ask(nvml.nvmlSystemGetDriverVersion)),
            "power_limit_w": None if limit is None else limit / 1000,
            "sm_clock_mhz": self.clock_mhz(),
            "max_sm_clock_mhz": maximum,
        }

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


@dataclass
class Readings:
    """Of one round; every value is None where there is no GPU, or it does not say."""

    energy_j: float | None = None
    power_w: float | None = None
    sm_clock_mhz: float | None = None
    peak_memory_bytes: float | None = None


@dataclass
class _Samples:
    power_w: list[float] = field(default_factory=list)
    clock_mhz: list[float] = field(default_factory=list)
    used_bytes: list[float] = field(default_factory=list)


@contextlib.contextmanager
def reading(meter: GpuMeter | None) -> Iterator[Readings]:
    """Energy over the body, mean power and clock, and the most memory in use; filled at its end."""
    readings = Readings()
    if meter is None:
        yield readings
        return
    samples, over = _Samples(), threading.Event()

    def sample() -> None:
        while True:
            for values, value in (
                (samples.power_w, meter.power_w()),
                (samples.clock_mhz, meter.clock_mhz()),
                (samples.used_bytes, meter.used_bytes()),
            ):
                if value is not None:
                    values.append(value)
            if over.wait(_PERIOD_S):
                return

    thread = threading.Thread(target=sample, daemon=True)
    before = meter.energy_j()
    thread.start()
    try:
        yield readings
    finally:
        after = meter.energy_j()
        over.set()
        thread.join()
    if before is not None and after is not None:
        readings.energy_j = after - before
    readings.power_w = statistics.fmean(samples.power_w) if samples.power_w else None
    readings.sm_clock_mhz = statistics.fmean(samples.clock_mhz) if samples.clock_mhz else None
    readings.peak_memory_bytes = max(samples.used_bytes, default=None)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)
