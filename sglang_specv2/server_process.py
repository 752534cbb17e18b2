"""What the demo and the benchmark need to run servers of their own."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess

_PORTS = range(10_000, 32_768)
"""Below those that Linux gives to whoever asks for any."""


def free_port() -> int:
    """A TCP port that nobody listens on now.

    A server may take a minute until it listens, so it is none that the system would give to another
    program meanwhile.

    Raises:
        OSError: hardly any is free.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"expected a free TCP port from {_PORTS.start} to {_PORTS.stop - 1}, found none")


def end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Ends the process and everything that it started.

    Args:
        process: leader of a session of its own.
        patience_s: for it to end by itself before its group is killed.
    """
    try:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
