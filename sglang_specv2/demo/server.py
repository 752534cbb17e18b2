"""``sglang-specv2 serve --cpu`` in a process group of its own, and a client for it."""

from __future__ import annotations

import contextlib
import http.client
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sglang_specv2.demo.sample import NOT_YET, Snapshot
from sglang_specv2.introspection import STATE_KEY
from sglang_specv2.server_process import end, free_port

ANSWER_TOKENS = 200
REQUEST_TIMEOUT_S = 60
STOP_TIMEOUT_S = 15


class DemoError(Exception):
    """The server did not start, ended, or did not do what the demo is there to show."""


class DemoServer:
    """Serves the bundled pair from construction to :meth:`stop`.

    Args:
        threshold: batch size, in requests, above which speculation stops.
        log: file that takes the server's output.
    """

    def __init__(self, threshold: int, log: Path) -> None:
        self.log = log
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "sglang_specv2.cli.main", "serve", "--cpu"]
        command += ["--host", "127.0.0.1", "--port", str(port)]
        command += ["--speculative-disable-batch-threshold", str(threshold)]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_ready(self, timeout_s: float) -> None:
        """Returns when the server answers.

        Raises:
            DemoError: it ended, or did not answer in time.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.check_alive()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.url}/health", timeout=5).close()
                return
            time.sleep(0.2)
        raise DemoError(f"the server did not answer within {timeout_s:.0f} s\n{self._log_tail()}")

    def check_alive(self) -> None:
        """Raises DemoError if the server has ended."""
        if self._process.poll() is not None:
            raise DemoError(
                f"the server ended with status {self._process.returncode}\n{self._log_tail()}"
            )

    def snapshot(self) -> Snapshot:
        """Raises DemoError if the server does not tell its state."""
        (internal,) = self._request("/server_info")["internal_states"]
        if STATE_KEY not in internal:
            raise DemoError(
                f"/server_info: expected {STATE_KEY}, which sglang-specv2's worker adds; found none"
                f"\n{self._log_tail()}"
            )
        state = internal[STATE_KEY]
        return Snapshot(
            mode=state["mode"] or NOT_YET,
            batch_size=state["batch_size"],
            verifies=state["verifies"],
            accepted_drafts=state["accepted_drafts"],
            plain_tokens=state["plain_tokens"],
            switches=sum(state["switches"].values()),
        )

    def answer(self, prompt: str) -> Iterator[str]:
        """The greedy answer to one chat message, in pieces as they are written.

        Raises:
            DemoError: the server does not answer.
        """
        body = {
            "model": "default",
            "messages": [{"role": "user", "content": prompt}],
            "temperature": 0,
            "max_tokens": ANSWER_TOKENS,
            "stream": True,
        }
        with self._asking("/v1/chat/completions", body) as response:
            for line in response:
                event = line.decode().strip().removeprefix("data: ")
                if event and event != "[DONE]":
                    for choice in json.loads(event)["choices"]:
                        yield choice["delta"].get("content") or ""

    def _request(self, path: str) -> Any:
        with self._asking(path) as response:
            return json.load(response)

    @contextlib.contextmanager
    def _asking(self, path: str, body: Any = None) -> Iterator[http.client.HTTPResponse]:
        """A response that is being read; whatever goes wrong meanwhile becomes a DemoError."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
                yield response
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            self.check_alive()
            raise DemoError(f"{path}: {error!r}\n{self._log_tail()}") from error

    def _log_tail(self, lines: int = 30) -> str:
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"--- last lines of {self.log}", *text[-lines:]])

    def stop(self) -> None:
        """Ends the server and everything that it started."""
        end(self._process, STOP_TIMEOUT_S)
