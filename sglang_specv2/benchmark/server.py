"""One arm's server, in a process group of its own, from start to stop."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sglang_specv2.benchmark.errors import ArmError
from sglang_specv2.server_process import end, free_port

LOG_TAIL_LINES, _LOG_LINE_CHARACTERS = 30, 300
_STOP_TIMEOUT_S = 15.0
_END_AFTER_REQUESTS_S = 3.0


class ArmServer:
    """A server process and what it says about itself.

    Args:
        arm: its name, for messages.
        command: without host and port.
        env: the whole environment of the process.
        log: file that takes its output, added to what is there.
    """

    def __init__(self, arm: str, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self.arm, self.log = arm, log
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.command = [*command, "--host", "127.0.0.1", "--port", str(port)]
        # Servers that start at the same time would pick the same one.
        self.command += ["--nccl-port", str(free_port())]
        self.start_s: float | None = None
        self._started = time.monotonic()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._log_start_bytes = output.tell()
            self._process = subprocess.Popen(
                self.command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_healthy(self, timeout_s: float) -> float:
        """Seconds from the start of the process to the first good answer of ``/health``.

        Raises:
            ArmError: it ended, or took longer.
        """
        while time.monotonic() - self._started < timeout_s:
            self.check_alive()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                self.start_s = time.monotonic() - self._started
                return self.start_s
            time.sleep(0.1)
        raise self.failed(f"not healthy {timeout_s:.0f} s after its start")

    def check_identity(self, difference: Callable[[Mapping[str, Any]], str | None]) -> None:
        """Raises ArmError where the server is not what ``difference`` of its arm expects."""
        found = difference(self.info())
        if found is not None:
            raise self.failed(found)

    def info(self, timeout_s: float = 60) -> dict[str, Any]:
        """``/server_info``.

        Raises:
            ArmError: no answer.
        """
        try:
            with urllib.request.urlopen(f"{self.url}/server_info", timeout=timeout_s) as answer:
                parsed: dict[str, Any] = json.load(answer)
        except (OSError, ValueError) as error:
            self.check_alive()
            raise self.failed(f"/server_info: {error!r}") from error
        return parsed

    def check_alive(self) -> None:
        """Raises ArmError if the process has ended."""
        status = self._process.poll()
        if status is not None:
            raise self.failed(f"the server ended with status {status}")

    def failed_requests(self, errors: Sequence[str]) -> ArmError:
        """An error about requests that failed, or about the end of the server that it was."""
        # Connections break before the process is gone: a scheduler that dies takes it along later.
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self._process.wait(_END_AFTER_REQUESTS_S)
            return self.failed(f"the server ended with status {status}")
        return self.failed(f"{len(errors)} requests failed: {errors[0]}")

    def failed(self, reason: str) -> ArmError:
        """An error with the end of this server's log."""
        return ArmError(f"{self.arm}: {reason}", self.log_tail())

    def log_tail(self) -> str:
        """The last lines that this process wrote."""
        with self.log.open("rb") as file:
            file.seek(self._log_start_bytes)
            lines = file.read().decode(errors="replace").splitlines()
        return "\n".join(line[:_LOG_LINE_CHARACTERS] for line in lines[-LOG_TAIL_LINES:])

    def terminate(self) -> None:
        """Asks the process to end and does not wait for it."""
        if self._process.poll() is None:
            self._process.terminate()

    def stop(self, patience_s: float = _STOP_TIMEOUT_S) -> None:
        """Ends the process and everything that it started.

        Args:
            patience_s: for it to end by itself before it is killed.
        """
        end(self._process, patience_s)
