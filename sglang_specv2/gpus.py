"""The NVIDIA GPUs of this machine, through NVML (nvidia-ml-py)."""

from dataclasses import dataclass


class NoGpuError(Exception):
    """NVML names no GPU; the message says why."""


@dataclass(frozen=True)
class Gpu:
    """One GPU, as the driver sees it now."""

    name: str
    total_bytes: int
    free_bytes: int
    driver: str


def find() -> list[Gpu]:
    """Every GPU of the machine, in the driver's order.

    Raises:
        NoGpuError: there is none, or no driver, or nvidia-ml-py is not installed.
    """
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
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        if not handles:
            raise NoGpuError("the NVIDIA driver lists no GPU")
        memory = [pynvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
        return [
            Gpu(_text(pynvml.nvmlDeviceGetName(handle)), int(m.total), int(m.free), driver)
            for handle, m in zip(handles, memory, strict=True)
        ]
    except pynvml.NVMLError as error:
        raise NoGpuError(f"the NVIDIA driver fails ({error})") from error
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
