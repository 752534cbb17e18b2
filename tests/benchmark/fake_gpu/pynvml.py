"""NVML's answers about a GPU that is not there, for runs with fake servers."""

from types import SimpleNamespace

NVML_CLOCK_SM = 1
nvmlClocksThrottleReasonSwPowerCap = 4
_millijoules = 0


class NVMLError(Exception):
    pass


def nvmlInit():
    pass


def nvmlShutdown():
    pass


def nvmlSystemGetDriverVersion():
    return "580.1"


def nvmlDeviceGetCount():
    return 1


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetName(handle):
    return "Fake GPU"


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(total=8 * 10**9, free=5 * 10**9, used=3 * 10**9)


def nvmlDeviceGetTotalEnergyConsumption(handle):
    """Counts 24 J from each look to the next."""
    global _millijoules
    _millijoules += 24_000
    return _millijoules


def nvmlDeviceGetPowerUsage(handle):
    return 300_000


def nvmlDeviceGetPowerManagementLimit(handle):
    return 700_000


def nvmlDeviceGetClockInfo(handle, clock):
    return 1500


def nvmlDeviceGetMaxClockInfo(handle, clock):
    return 1980


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return nvmlClocksThrottleReasonSwPowerCap
