"""Parts of the worker that import SGLang, each by itself: the checks in ``tests/with_sglang``.

They run in a process of their own, because importing SGLang without a GPU needs the CPU engine
installed first, and both change the process for every test after them.
"""

import sys
from pathlib import Path

import stock_sglang

CHECKS = Path(__file__).parents[1] / "with_sglang"
PATTERN = "python_files=check_*.py"


def test_the_worker_part_by_part():
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "worker_fixtures", "-o", PATTERN]
    done = stock_sglang.run(
        [sys.executable, "-m", "pytest", *arguments, str(CHECKS)],
        stock_sglang.environment(CHECKS),
        CHECKS.parents[1],
    )

    assert done.returncode == 0, done.stdout + done.stderr
