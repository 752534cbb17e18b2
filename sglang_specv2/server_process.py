"""What the demo and the benchmark need to run servers of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


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
