"""cuda_graphs stands on torch alone."""

import os
import pkgutil
import subprocess
import sys

import cuda_graphs


def test_imports_neither_sglang_nor_sglang_specv2():
    modules = [
        f"cuda_graphs.{module.name}" for module in pkgutil.iter_modules(cuda_graphs.__path__)
    ]
    assert "cuda_graphs.graph" in modules
    code = f"""
import sys, {", ".join(modules)}
print(sorted({{"sglang", "sglang_specv2"}} & sys.modules.keys()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "[]\n", done.stderr


def test_every_public_name_exists():
    assert all(hasattr(cuda_graphs, name) for name in cuda_graphs.__all__)
