"""Makes the Python environment for this repository once, and says where its Python is.

    python tools/environment.py            the one for this machine
    python tools/environment.py --full     SGLang with everything, CUDA builds included
    python tools/environment.py --light    what runs on a plain CPU, about 1.5 GB
    python tools/environment.py --serving FOLDER    the light one, less tests, in FOLDER

Without a choice it is the full environment where an NVIDIA GPU is found, else the light one. It
lies outside the clone, in ~/.cache/sglang-specv2 (or $XDG_CACHE_HOME), under a name made of its
kind, the Python version and the contents of requirements/, so clones share it and a changed pin
makes a new one. Only the standard library is needed here.

The environment holds no copy of this repository. Each clone keeps its own metadata beside its code
(sglang_specv2.egg-info, by which SGLang finds the plugin), and both count through PYTHONPATH, which
the Makefile sets to the clone. Progress goes to standard error.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = ROOT / "requirements"
PYTHONS = ("3.11", "3.12", "3.10")
"""Versions that SGLang 0.5.17 and this project run on, the best tested first."""

TORCH = "2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"

NO_DEPENDENCIES = "cpu-no-deps.txt"
FILES = {
    "light": ("cpu.txt", NO_DEPENDENCIES, "dev.txt"),
    "full": ("gpu.txt", "dev.txt"),
    "serving": ("cpu.txt", NO_DEPENDENCIES),
}


class SetupError(Exception):
    """The environment cannot be made; the text says why and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the path of the environment's Python; 1 and a reason when there is none.

    With ``--serving`` it fills that folder and prints nothing.
    """
    parser = argparse.ArgumentParser(
        description="Makes the Python environment for this repository once; prints its Python."
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--full", action="store_true", help="SGLang with all it asks for")
    choice.add_argument("--light", action="store_true", help="what runs on a plain CPU")
    choice.add_argument(
        "--serving", type=Path, metavar="FOLDER", help="what serves on a plain CPU, in a new FOLDER"
    )
    parser.add_argument("--print-python", action="store_true", help="print its path and no advice")
    options = parser.parse_args(arguments)
    kind = "full" if options.full or (not options.light and gpu_found()) else "light"
    try:
        if options.serving is not None:
            python = options.serving.absolute() / "bin" / "python"
            make("serving", base_python(), options.serving, python)
            return 0
        python = ensure(kind)
        ensure_metadata(python)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    if not options.print_python:
        say(f"ready; use it with PYTHONPATH={ROOT}")
    print(python)
    return 0


def say(text: str) -> None:
    print(f"environment: {text}", file=sys.stderr, flush=True)


def gpu_found() -> bool:
    """Whether the NVIDIA driver lists a GPU."""
    if shutil.which("nvidia-smi") is None:
        return False
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return listing.returncode == 0 and "GPU " in listing.stdout


def ensure(kind: str) -> Path:
    """The Python of the environment ``kind``, made first if it is not whole.

    One process makes it while others wait. The mark of a whole one is written last: what an
    interrupted run left is removed, never used.

    Raises:
        SetupError: no suitable Python, no venv module, or an install that fails.
    """
    base = base_python()
    folder = cache() / name(kind, base)
    python, mark = folder / "bin" / "python", folder / "complete"
    if mark.is_file():
        return python
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f"{folder.name}.lock")):
        if mark.is_file():
            return python
        if folder.exists():
            shutil.rmtree(folder)
        say(f"making the {kind} environment in {folder}, once; this takes some minutes")
        try:
            make(kind, base, folder, python)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        mark.write_text("\n".join(sorted(FILES[kind])) + "\n")
    return python


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sglang-specv2"


def name(kind: str, base: str) -> str:
    """Such as ``light-py3.11-0a1b2c3d4e5f``: changes with the Python and with any pin."""
    digest = hashlib.sha256(f"{TORCH} {platform.machine()} {sys.platform}".encode())
    for file in FILES[kind]:
        digest.update((REQUIREMENTS / file).read_bytes())
    return f"{kind}-py{version_of(base)}-{digest.hexdigest()[:12]}"


def base_python() -> str:
    """This Python if it is of a supported version, else the first such one on PATH.

    Raises:
        SetupError: there is none.
    """
    found = [sys.executable, *filter(None, (shutil.which(f"python{v}") for v in PYTHONS))]
    for python in found:
        if version_of(python) in PYTHONS:
            return python
    raise SetupError(
        f"expected Python 3.10, 3.11 or 3.12, found {platform.python_version()} at "
        f"{sys.executable} and none on PATH; install one, or say `make PYTHON=/path/to/python3.11`"
    )


def version_of(python: str) -> str:
    """Major and minor version, or an empty string for what does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    result = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return result.stdout.strip()


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on ``path``; the system frees it when the process ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is making it; waiting")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make(kind: str, base: str, folder: Path, python: Path) -> None:
    """Fills ``folder``; raises SetupError where a step fails."""
    run(
        [base, "-m", "venv", str(folder)],
        f"{base} cannot make virtual environments; on Debian install python3-venv",
    )
    with_dependencies = [file for file in FILES[kind] if file != NO_DEPENDENCIES]
    torch = [] if kind == "full" else [install_cpu_torch(python)]
    pip(python, *torch, *requirement_flags(*with_dependencies))
    if NO_DEPENDENCIES in FILES[kind]:
        pip(python, "--no-deps", *requirement_flags(NO_DEPENDENCIES))


def requirement_flags(*files: str) -> list[str]:
    return [flag for file in files for flag in ("-r", str(REQUIREMENTS / file))]


def install_cpu_torch(python: Path) -> str:
    """Installs torch, its CPU build if there is one, and returns the requirement that keeps it.

    First from the indexes that pip is configured with, then from PyTorch's own. Where neither has
    a CPU build, the ordinary one does: on macOS it is the same, on Linux it adds 5 GB of CUDA.
    """
    cpu_build = f"torch=={TORCH}+cpu"
    attempts = (
        [cpu_build],
        [cpu_build, "--extra-index-url", TORCH_CPU_INDEX],
    )
    for arguments in attempts:
        command = [str(python), "-m", "pip", "install", "--quiet", *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return cpu_build
    say(f"found no CPU build of torch {TORCH}; installing the ordinary one")
    pip(python, f"torch=={TORCH}")
    return f"torch=={TORCH}"


def pip(python: Path, *arguments: str) -> None:
    run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments],
        f"pip could not install {' '.join(arguments)} (its own words are above); check the network "
        "and the indexes that pip is configured with, then run this again",
    )


def run(command: Sequence[str], reason: str) -> None:
    """Runs ``command`` with its output on standard error; raises SetupError(reason) on failure."""
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        raise SetupError(reason)


def ensure_metadata(python: Path) -> None:
    """Writes this clone's metadata where it is missing or older than what it is made from."""
    written = ROOT / "sglang_specv2.egg-info" / "entry_points.txt"
    sources = [ROOT / "setup.py", ROOT / "sglang_specv2" / "version.py"]
    if written.is_file() and all(
        source.stat().st_mtime <= written.stat().st_mtime for source in sources
    ):
        return
    command = [str(python), "setup.py", "--quiet", "egg_info"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode != 0 or not written.is_file():
        raise SetupError(f"setup.py egg_info failed:\n{result.stdout}{result.stderr}")
    written.touch()


if __name__ == "__main__":
    sys.exit(main())
