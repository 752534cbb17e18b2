"""Which commit this package was run from."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def commit() -> str | None:
    """The commit of the checkout, with ``-dirty`` behind it where files differ; None where the
    package is installed without one."""
    if not (ROOT / ".git").exists():
        return None
    try:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None
