"""A clean root without a container engine: images that buildah makes, their steps in a chroot."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCKER = ROOT / "docker"
DEBIAN = "bookworm"


class Failure(Exception):
    """A check failed; the text says which and why."""


def say(text: str) -> None:
    print(f"docker-test: {text}", flush=True)


def run(command: Sequence[str | Path], what: str) -> str:
    """Standard output of ``command``; Failure with its output where it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"{what}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def require_a_clean_root() -> None:
    """Raises Failure where no clean root can be made, with what is missing."""
    missing = [tool for tool in ("debootstrap", "buildah") if shutil.which(tool) is None]
    if missing:
        raise Failure(f"{', '.join(missing)} not found; apt-get install debootstrap buildah")
    if os.geteuid() != 0:
        raise Failure("debootstrap needs root; run it as root, in a virtual machine say")


class Buildah:
    """Images and containers in a folder of their own, with this machine's network.

    What pip is configured with here holds in there too: its indexes on this disk, its certificates.

    Args:
        folder: takes everything; some 10 GB while it runs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._command = ["buildah", "--root", f"{folder}/store", "--runroot", f"{folder}/run"]
        self._volumes = list(pip_volumes(folder))

    def __call__(self, *arguments: str | Path) -> str:
        return run([*self._command, *map(str, arguments)], "buildah").strip()

    def bootstrap(self, image: str) -> None:
        """Makes ``image`` from Debian's packages."""
        root = self._folder / "debian"
        run(["debootstrap", "--variant=minbase", DEBIAN, root], "debootstrap")
        container = self("from", "scratch")
        self("add", "--quiet", container, root, "/")
        self("commit", "--quiet", container, image)
        self("rm", container)
        shutil.rmtree(root)

    def build(self, file: str, image: str, *options: str, **arguments: str) -> None:
        """Builds ``docker/FILE``; keywords are its ARGs."""
        began = time.monotonic()
        flags = ["--isolation", "chroot", "--format", "docker", "--layers", *options]
        for volume in self._volumes:
            flags += ["--volume", volume]
        for name, value in arguments.items():
            flags += ["--build-arg", f"{name}={value}"]
        self("build-using-dockerfile", *flags, "--tag", image, "--file", DOCKER / file, ROOT)
        say(f"{file} builds ({time.monotonic() - began:.0f} s)")

    def config(self, image: str) -> dict[str, Any]:
        """What the image says of itself: user, entrypoint, labels, health check."""
        inspected = json.loads(self("inspect", "--type", "image", image))
        config: dict[str, Any] = inspected["Docker"]["config"]
        return config

    @contextlib.contextmanager
    def running(self, image: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """A container of ``image`` with its own entrypoint; without arguments, its own command."""
        config = self.config(image)
        command = [*config["Entrypoint"], *(arguments or config.get("Cmd") or ())]
        container = self("from", "--isolation", "chroot", image)
        log = self._folder / f"{container}.log"
        process = None
        try:
            with log.open("wb") as output:
                process = subprocess.Popen(
                    [*self._command, "run", "--isolation", "chroot", container, "--", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            yield process
        except Failure as failure:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise Failure(f"{failure}\n--- {image} {' '.join(command)}\n{tail}") from None
        finally:
            if process is not None:
                stop(process)
            self("rm", container)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and its group: asked first, killed after 20 s."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def pip_volumes(folder: Path) -> Iterator[str]:
    """Mounts by which pip in a container is configured as it is here."""
    listing = run([sys.executable, "-m", "pip", "config", "list"], "pip")
    lines = ["[global]"]
    for line in listing.splitlines():
        name, _, quoted = line.partition("=")
        key, value = name.rpartition(".")[2], quoted.strip("'")
        if key == "cert":
            yield f"{value}:/etc/ssl/pip.pem:ro"
            lines.append("cert = /etc/ssl/pip.pem")
        elif key in ("index-url", "extra-index-url", "find-links"):
            lines.append(f"{key} = " + value.replace(" ", "\n  "))
            for place in value.split():
                path = Path(place.removeprefix("file://"))
                if path.is_absolute():
                    # An index names its files by paths beside it.
                    mounted = path.parent if place.startswith("file://") else path
                    yield f"{mounted}:{mounted}:ro"
    file = folder / "pip.conf"
    file.write_text("\n".join(dict.fromkeys(lines)) + "\n")
    yield f"{file}:/etc/pip.conf:ro"
