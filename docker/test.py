"""``make docker-test``: builds and runs the images without a container engine.

Lints the Dockerfiles and scripts, reads the compose files as ``docker compose`` does, then makes a
bare Debian with debootstrap and builds every Dockerfile on it with buildah, which needs no daemon:
its steps run in a chroot. The servers built are started, asked and put behind the router.

It needs root and, from Debian or Ubuntu, ``debootstrap`` and ``buildah``. SGLang's own image cannot
be had this way: docker/Dockerfile is built on the CPU engine's environment in its place. What that
leaves open is in docker/README.md.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import runpy
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clean_root import DEBIAN, DOCKER, ROOT, Buildah, Failure, require_a_clean_root, run, say

sys.path.insert(0, str(ROOT / "tools"))

import environment

COMPOSE_FILES = ("compose.yaml", "compose.router.yaml")
DOCKERFILES = ("Dockerfile", "Dockerfile.cpu", "Dockerfile.router")
DEBIAN_IMAGE, SGLANG_IMAGE = "localhost/debian", "localhost/sglang"
CPU, GPU, ROUTER = "localhost/specv2-cpu", "localhost/specv2", "localhost/specv2-router"
START_TIMEOUT_S = 180
QUESTION = "Write a function that does this: Return the longest word of a text."


def main() -> int:
    """Runs every check; 1 and a reason at the first that fails."""
    try:
        tools = test_tools()
        lint(tools)
        read_compose_files(tools)
        require_a_clean_root()
        with tempfile.TemporaryDirectory(prefix="sglang-specv2-docker-") as folder:
            try:
                build_and_serve(Buildah(Path(folder)))
            finally:
                # Containers of an interrupted run keep file systems mounted there.
                subprocess.run(["umount", "--quiet", "--recursive", folder], check=False)
    except Failure as error:
        say(f"FAILED: {error}")
        return 1
    say("everything in order; what only an engine can show is listed in docker/README.md")
    return 0


def test_tools() -> Path:
    """The folder with hadolint, docker-compose and shellcheck; installed where it is missing."""
    pins = DOCKER / "test-tools.txt"
    digest = hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    folder = environment.cache() / f"docker-tools-{digest}"
    if not (folder / "complete").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", folder], "venv")
        run([folder / "bin" / "pip", "install", "--quiet", "-r", pins], "pip")
        (folder / "complete").touch()
    return folder / "bin"


def lint(tools: Path) -> None:
    for file in DOCKERFILES:
        run([tools / "hadolint", DOCKER / file], "hadolint")
    run([tools / "shellcheck", *DOCKER.glob("*.sh")], "shellcheck")
    say(f"{len(DOCKERFILES)} Dockerfiles and the scripts are clean")


def read_compose_files(tools: Path) -> None:
    for file in COMPOSE_FILES:
        command = ["env", "MODEL=m", "DRAFT=d", tools / "docker-compose", "-f", DOCKER / file]
        config = json.loads(run([*command, "config", "--format", "json"], "docker compose"))
        for name, service in config["services"].items():
            for volume in service.get("volumes", ()):
                source = Path(volume["source"])
                of_ours = volume["type"] == "bind" and source.is_relative_to(ROOT)
                if of_ours and not source.exists():
                    raise Failure(f"{file}: {name} mounts {source}, which is not there")
        say(f"{file}: {', '.join(sorted(config['services']))}")


def build_and_serve(buildah: Buildah) -> None:
    """Builds the three images and sends requests to the servers in them."""
    buildah.bootstrap(f"{DEBIAN_IMAGE}:{DEBIAN}-slim")
    say(f"a bare Debian {DEBIAN} is made")
    version = runpy.run_path(str(ROOT / "sglang_specv2" / "version.py"))["__version__"]
    cpu_base = {"DEBIAN_IMAGE": DEBIAN_IMAGE, "VERSION": version}
    # In place of SGLang's own image: SGLang with what it needs on a CPU, and nothing of ours.
    buildah.build("Dockerfile.cpu", f"{SGLANG_IMAGE}:stand-in", "--target", "sglang", **cpu_base)
    stand_in = {"SGLANG_IMAGE": SGLANG_IMAGE, "SGLANG_TAG": "stand-in", "VERSION": version}
    buildah.build("Dockerfile.cpu", CPU, **cpu_base)
    buildah.build("Dockerfile", GPU, **stand_in)
    buildah.build("Dockerfile.router", ROUTER, PYTHON_IMAGE=SGLANG_IMAGE, PYTHON_TAG="stand-in")
    for image in (CPU, GPU):
        check_config(buildah.config(image), version)
    ports = [free_port(), free_port()]
    own_command = buildah.config(CPU)["Cmd"]
    with (
        buildah.running(CPU, *own_command, "--port", str(ports[0])) as first,
        buildah.running(GPU, "--cpu", "--port", str(ports[1])) as second,
    ):
        for process, port in ((first, ports[0]), (second, ports[1])):
            wait_until_answer(process, port, "/health")
            expect("an answer", ask(port))
            command_line = f"/proc/{process.pid}/cmdline"
            run([sys.executable, DOCKER / "healthcheck.py", command_line], "healthcheck.py")
            expect("a server that runs as user 1000", owners(port) == {1000})
        say("both images serve, as user 1000, and are healthy")
        expect("SGLang's metrics", "sglang:" in get(ports[0], "/metrics").decode())
        route(buildah, ports)


def check_config(config: dict[str, Any], version: str) -> None:
    """Raises Failure unless the image says what it has to."""
    expect("user 1000:0", config["User"] == "1000:0")
    expect("a health check", config["Healthcheck"]["Test"][-1].endswith("healthcheck.py"))
    expect(f"the label {version}", config["Labels"]["org.opencontainers.image.version"] == version)


def route(buildah: Buildah, servers: Sequence[int]) -> None:
    """Asks the router with compose.router.yaml's own flags, and sees both servers get requests."""
    compose = (DOCKER / "compose.router.yaml").read_text(encoding="utf-8")
    flags = shlex.split(compose.partition("--worker-urls")[2].partition("ports:")[0])
    flags = flags[[flag.startswith("--") for flag in flags].index(True) :]
    urls = [f"http://127.0.0.1:{port}" for port in servers]
    before = [verifies(port) for port in servers]
    port = free_port()
    # By turns, so that four requests reach both.
    own = ["--port", str(port), "--prometheus-port", str(free_port()), "--policy", "round_robin"]
    with buildah.running(ROUTER, "--worker-urls", *urls, *flags, *own) as process:
        # Its /health is up before it has looked at its servers.
        wait_until_answer(process, port, "/readiness")
        for _ in range(4):
            expect("an answer through the router", ask(port))
    served = [verifies(port) - earlier for port, earlier in zip(servers, before, strict=True)]
    expect(f"requests at both servers, not {served}", all(served))
    say("the router serves, and both servers behind it got requests")


def expect(what: str, found: object) -> None:
    if not found:
        raise Failure(f"expected {what}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_answer(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    """Returns at the first answer to ``path``; Failure if the server ends or none comes in time."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise Failure(f"the server ended with status {process.returncode}")
        with contextlib.suppress(Failure):
            get(port, path)
            return
        time.sleep(0.5)
    raise Failure(f"no answer to {path} within {START_TIMEOUT_S} s")


def owners(port: int) -> set[int]:
    """User ids of the processes that were started with ``--port PORT``, buildah's own aside."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (process / "cmdline").read_text(errors="replace").split("\0")
            if str(port) in command and "buildah" not in command[0]:
                found.add(process.stat().st_uid)
    return found


def ask(port: int) -> str:
    """The answer of /v1/chat/completions to a question."""
    message = {"role": "user", "content": QUESTION}
    body = {"model": "default", "messages": [message], "temperature": 0, "max_tokens": 60}
    answer = json.loads(get(port, "/v1/chat/completions", body))
    text: str = answer["choices"][0]["message"]["content"]
    return text


def verifies(port: int) -> int:
    """Requests that the server at ``port`` has verified, as its worker counts."""
    (state,) = json.loads(get(port, "/server_info"))["internal_states"]
    count: int = state["speculative_dynamic_state"]["verifies"]
    return count


def get(port: int, path: str, body: Any = None) -> bytes:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            content: bytes = response.read()
    except OSError as error:
        raise Failure(f"{path}: {error}") from error
    return content


if __name__ == "__main__":
    sys.exit(main())
