"""Runs commands in processes that have stock SGLang and this package as its plugin, no server.

Where triton is missing, the processes get the stand-ins of the CPU engine by their environment, so
that the commands are SGLang's own.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from sglang_specv2 import cpu

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 180

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_hidden_layers": 4,
    "vocab_size": 256,
    "max_position_embeddings": 512,
    "torch_dtype": "float32",
}
DRAFT = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 256,
}


def entry_points(folder: Path) -> Path:
    """Writes the metadata that an installation has, and returns the folder for the search path."""
    subprocess.run(
        [sys.executable, "setup.py", "-q", "egg_info", "--egg-base", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    return folder


def environment(*search: Path, **variables: str) -> dict[str, str]:
    """An environment for SGLang's commands, with ``search`` before this checkout on the path."""
    base = {name: value for name, value in os.environ.items() if "SPECV2" not in name}
    base["PYTHONPATH"] = os.pathsep.join(map(str, (*search, ROOT)))
    if importlib.util.find_spec("triton") is None:
        base = cpu.environment(base)
    return {**base, **variables}


def run(
    command: list[str], env: dict[str, str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, whatever its exit status."""
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def answer(script: str, env: dict[str, str], *arguments: str, cwd: Path) -> Any:
    """Runs a script (written to ``cwd``) and returns what its last line of output is in JSON."""
    file = cwd / "script.py"
    file.write_text(script, encoding="utf-8")
    done = run([sys.executable, "-W", "ignore", str(file), *arguments], env, cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def model_folders(folder: Path) -> tuple[Path, Path]:
    """Folders of a target and a draft that hold a configuration and no weights."""
    made = []
    for name, config in (("target", LLAMA), ("draft", DRAFT)):
        path = folder / name
        path.mkdir()
        (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        made.append(path)
    return made[0], made[1]
