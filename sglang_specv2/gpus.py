"""The NVIDIA GPUs of this machine, through NVML (nvidia-ml-py)."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any


class NoGpuError(Exception):
    """NVML names no GPU; the message says why."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver sees it now; None where the driver does not say.

    Attributes:
        power_w, power_limit_w: drawn now, and the most allowed.
        sm_mhz, max_sm_mhz: clock of the multiprocessors now, and the highest.
        throttled: why the clock is held below what load and temperature would allow, in the
            driver's terms; empty when it is not, or only because nothing runs.
    """

    name: str
    total_bytes: int
    free_bytes: int
    driver: str
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_mhz: int | None = None
    max_sm_mhz: int | None = None
    throttled: tuple[str, ...] = ()


def find() -> list[Gpu]:
    """Every GPU of the machine, in the driver's order.

    Raises:
        NoGpuError: there is none, or no driver, or nvidia-ml-py is not installed.
    """
    return _look_at(None)


def visible(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """Those that ``CUDA_VISIBLE_DEVICES`` leaves to this process; all without it.

    Raises:
        NoGpuError: as :func:`find`, or it names one that is not there.
    """
    named = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    return _look_at(None if named is None else [n.strip() for n in named.split(",") if n.strip()])


def handle_of(pynvml: ModuleType, name: str) -> Any:
    """NVML's handle of a GPU.

    Args:
        pynvml: initialized.
        name: its number in the driver's order, or its UUID; as ``CUDA_VISIBLE_DEVICES`` has it.
    """
    if name.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(name))
    return pynvml.nvmlDeviceGetHandleByUUID(name)


def held_back(gpu: Mapping[str, Any]) -> str | None:
    """How the clock of a GPU, given by the fields of :class:`Gpu`, is held down; None if not."""
    if not gpu.get("throttled"):
        return None
    return (
        f"{gpu['name']} is held back by {', '.join(gpu['throttled'])} at {gpu['sm_mhz']} of "
        f"{gpu['max_sm_mhz']} MHz"
    )


def _look_at(names: list[str] | None) -> list[Gpu]:
    """The GPUs of these names, see :func:`handle_of`; None: all."""
    try:
        import pynvml
    except ImportError:
        raise NoGpuError("nvidia-ml-py is not installed") from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoGpuError(f"no NVIDIA driver answers ({error})") from None
    try:
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        if names is None:
            names = [str(number) for number in range(pynvml.nvmlDeviceGetCount())]
        handles = [handle_of(pynvml, name) for name in names]
        if not handles:
            raise NoGpuError("the NVIDIA driver lists no GPU")
        return [_look(pynvml, handle, driver) for handle in handles]
    except pynvml.NVMLError as error:
        raise NoGpuError(f"the NVIDIA driver fails ({error})") from error
    finally:
        pynvml.nvmlShutdown()


_THROTTLES = (
    "SwPowerCap",
    "HwSlowdown",
    "SyncBoost",
    "SwThermalSlowdown",
    "HwThermalSlowdown",
    "HwPowerBrakeSlowdown",
)


def _look(pynvml: ModuleType, handle: Any, driver: str) -> Gpu:
    def asked(name: str, *args: Any) -> Any:
        try:
            return getattr(pynvml, name)(handle, *args)
        except (pynvml.NVMLError, AttributeError):
            return None  # Not on this GPU, or not for this user.

    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    power_mw, limit_mw = asked("nvmlDeviceGetPowerUsage"), asked("nvmlDeviceGetEnforcedPowerLimit")
    reasons = asked("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
    bits = {name: getattr(pynvml, f"nvmlClocksThrottleReason{name}", 0) for name in _THROTTLES}
    return Gpu(
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        total_bytes=int(memory.total),
        free_bytes=int(memory.free),
        driver=driver,
        power_w=None if power_mw is None else power_mw / 1e3,
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        sm_mhz=asked("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
        max_sm_mhz=asked("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),
        throttled=tuple(name for name, bit in bits.items() if reasons & bit),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
