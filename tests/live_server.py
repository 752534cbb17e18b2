"""A server of SGLang in a process of its own, and a client for it.

A scheduler that crashes kills its parent, so no engine ever runs inside pytest. Whatever a request
or the start meets, the error shows the end of the server's log.
"""

import importlib.metadata
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import requests

from sglang_specv2 import cpu
from sglang_specv2.server_process import end, free_port

ROOT = Path(__file__).resolve().parents[1]

CHECKS = {
    # A KV or request slot that is still held when the server is idle ends the scheduler.
    "SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1",
    # Health is then a matter of the process alone: no request of its own among the test's.
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    "PYTHONUNBUFFERED": "1",
    # A test says so if it wants the modes to depend on how fast this machine happens to be.
    "SGLANG_SPECV2_DYNAMIC": "always",
}

Prompt = str | Sequence[int]


class ServerError(Exception):
    """The server did not start, ended, or answered with an error."""


@dataclass(frozen=True)
class Answer:
    """What ``/generate`` returned for one prompt.

    ``meta`` is SGLang's ``meta_info``.
    """

    token_ids: list[int]
    text: str
    meta: dict[str, Any]

    @property
    def accept_length(self) -> float:
        """Tokens a verification, drafts and bonus token."""
        return self.meta["completion_tokens"] / self.meta["spec_verify_ct"]


class LiveServer:
    """``python -m sglang.launch_server`` on a free port, from start to :meth:`stop`.

    Attributes:
        headers: sent with every request.

    Args:
        model: folder of the target.
        log: file that takes the server's output.
        draft: folder of the draft; speculation is EAGLE-3 with 2 steps (3 draft tokens), topk 1.
        arguments: further ones of the launcher; they win.
        env: variables beside the process's own.
        device: ``cpu`` for the CPU engine, else SGLang as it is.
        start_timeout_s, timeout_s: bounds on the start and on each request.

    Raises:
        ServerError: the server ended or was not healthy in time.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        draft: Path | None = None,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        device: str = "cpu",
        start_timeout_s: float = 180,
        timeout_s: float = 120,
    ) -> None:
        self.log = log
        self.timeout_s = timeout_s
        self.url = f"http://127.0.0.1:{free_port()}"
        self.headers: dict[str, str] = {}
        self._pool = ThreadPoolExecutor(64)
        environment = child_environment(device, env or {})
        flags = ["--model-path", str(model), "--device", device]
        flags += ["--host", "127.0.0.1", "--port", self.url.rpartition(":")[2]]
        if draft is not None:
            flags += ["--speculative-algorithm", "EAGLE3"]
            flags += ["--speculative-draft-model-path", str(draft)]
            flags += ["--speculative-num-steps", "2", "--speculative-eagle-topk", "1"]
            flags += ["--speculative-num-draft-tokens", "3"]
        if not (model / "tokenizer.json").exists():
            flags += ["--skip-tokenizer-init"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "sglang.launch_server", *flags, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_healthy(start_timeout_s)
        except BaseException:
            self.stop()
            raise

    def _wait_until_healthy(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise ServerError(
                    f"the server ended with {self._process.returncode} at start\n{self.log_tail()}"
                )
            try:
                if requests.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return
            except requests.RequestException:
                pass
            time.sleep(0.1)
        raise ServerError(f"the server was not healthy after {timeout_s} s\n{self.log_tail()}")

    def generate(
        self, prompts: Sequence[Prompt], rids: Sequence[str] = (), **sampling: Any
    ) -> list[Answer]:
        """Answers to ``prompts``, sent as one request; by default greedy and past EOS."""
        body = generate_body(list(prompts), sampling) | ({"rid": list(rids)} if rids else {})
        return self._answers(self.post("/generate", body))

    def submit(self, prompt: Prompt, rid: str | None = None, **sampling: Any) -> "Future[Answer]":
        """One prompt in a request of its own; returns at once."""
        body = generate_body(prompt, sampling) | ({"rid": rid} if rid else {})
        return self._pool.submit(lambda: self._answers([self.post("/generate", body)])[0])

    def abort(self, rid: str) -> None:
        """Ends the request ``rid``; its answer says so in ``meta["finish_reason"]``."""
        self.post("/abort_request", {"rid": rid})

    def wait_until_idle(self, timeout_s: float = 20) -> None:
        """Returns when nothing runs and the scheduler's check found every slot free.

        Raises:
            ServerError: it does not come to rest, or the check ended the scheduler.
        """
        deadline = time.monotonic() + timeout_s
        while self.ask("POST", "/flush_cache").status_code != 200:
            if time.monotonic() > deadline:
                raise ServerError(f"the server is not idle after {timeout_s} s\n{self.log_tail()}")
            time.sleep(0.1)
        # The check runs in the idle loop; two more passes through it end in an answer.
        for _ in range(2):
            self.get("/server_info")
        self.check_alive()

    def check_alive(self) -> None:
        """Raises ServerError if the server has ended."""
        if self._process.poll() is not None:
            raise ServerError(
                f"the server ended with {self._process.returncode}\n{self.log_tail()}"
            )

    def get(self, path: str) -> Any:
        return self._request("GET", path, None)

    def state(self) -> dict[str, Any]:
        """What our worker says of itself, on the first rank."""
        return self.get("/server_info")["internal_states"][0]["speculative_dynamic_state"]

    def post(self, path: str, body: Any) -> Any:
        return self._request("POST", path, body)

    def ask(self, method: str, path: str, body: Any = None) -> requests.Response:
        """The answer as it came, whatever its status."""
        try:
            return requests.request(
                method, self.url + path, json=body, headers=self.headers, timeout=self.timeout_s
            )
        except requests.RequestException as error:
            raise ServerError(f"{method} {path}: {error}\n{self.log_tail()}") from error

    def _request(self, method: str, path: str, body: Any) -> Any:
        response = self.ask(method, path, body)
        if response.status_code != 200:
            raise ServerError(
                f"{method} {path}: {response.status_code} {response.text[:2000]}\n{self.log_tail()}"
            )
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return response.json() if is_json else response.text

    @staticmethod
    def _answers(bodies: list[dict[str, Any]]) -> list[Answer]:
        return [
            Answer(body["output_ids"], body.get("text", ""), body["meta_info"]) for body in bodies
        ]

    def process(self) -> psutil.Process:
        """The launcher; everything else is its child."""
        return psutil.Process(self._process.pid)

    def terminate(self, timeout_s: float = 60) -> int:
        """Asks the server to end, as a process manager does, and returns its exit status.

        Raises:
            subprocess.TimeoutExpired: it does not.
        """
        self._process.terminate()
        return self._process.wait(timeout_s)

    def processes_left(self) -> bool:
        """Whether anything that the server started still runs."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def log_tail(self, lines: int = 60) -> str:
        """The end of the log and where all of it lies."""
        text = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"--- last lines of {self.log}", *text[-lines:]])

    def stop(self) -> None:
        """Ends the server and everything that it started."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        end(self._process, 20)


def generate_body(prompt: Any, sampling: dict[str, Any]) -> dict[str, Any]:
    """A request to ``/generate``; keywords that are none of sampling go beside the parameters."""
    beside = {
        "custom_logit_processor",
        "logprob_start_len",
        "return_logprob",
        "stream",
        "top_logprobs_num",
    }
    params = {"temperature": 0.0, "max_new_tokens": 32, "ignore_eos": True} | sampling
    is_text = isinstance(prompt, str) or (prompt and isinstance(prompt[0], str))
    return {
        "text" if is_text else "input_ids": prompt,
        "sampling_params": {k: v for k, v in params.items() if k not in beside},
    } | {k: v for k, v in params.items() if k in beside}


def child_environment(device: str, env: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server or engine: this repository importable, checks on.

    Raises:
        ServerError: the plugin is meant to run, and this Python does not find its entry point.
    """
    merged = {**os.environ, **CHECKS, **env}
    if merged.get("SGLANG_SPECV2", "1") != "0":
        names = {
            point.name for point in importlib.metadata.entry_points(group="sglang.srt.plugins")
        }
        if "specv2" not in names:
            raise ServerError(
                "SGLang would not find our plugin: run the tests with `make test`, or with the "
                "environment of `python tools/environment.py`"
            )
    search = [str(ROOT), *filter(None, merged.get("PYTHONPATH", "").split(os.pathsep))]
    merged["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(search))
    return cpu.environment(merged) if device == "cpu" else merged
