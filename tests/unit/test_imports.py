import subprocess
import sys

import pytest
from stock_sglang import ROOT

BUDGET_S = 0.100


def loaded_by(module):
    script = f"import sys, {module}\nprint(*sorted({{'sglang', 'torch'}} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    "module",
    [
        "sglang_specv2",
        "sglang_specv2.config",
        "sglang_specv2.policy",
        "sglang_specv2.hook",
        "sglang_specv2.plugin",
        "sglang_specv2.compat",
        "sglang_specv2.gates",
        "sglang_specv2.cli.main",
    ],
)
def test_imports_neither_torch_nor_sglang(module):
    assert loaded_by(module) == []


def test_the_check_would_see_an_import():
    assert loaded_by("torch") == ["torch"]


def test_import_time():
    script = (
        "import time; start = time.perf_counter(); import sglang_specv2\n"
        "print(time.perf_counter() - start)"
    )
    times_s = [
        float(subprocess.check_output([sys.executable, "-c", script], cwd=ROOT, timeout=60))
        for _ in range(5)
    ]
    assert min(times_s) < BUDGET_S, times_s
