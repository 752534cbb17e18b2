"""Packaging.

Installing never changes the torch or the SGLang that is there: neither is required here.
"""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
VERSIONS = runpy.run_path(str(ROOT / "sglang_specv2" / "version.py"))


def requirements(file: str) -> list[str]:
    """The requirements of a file in requirements/, without their comments."""
    lines = (ROOT / "requirements" / file).read_text(encoding="utf-8").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


setup(
    name="sglang-specv2",
    version=VERSIONS["__version__"],
    description="Speculative decoding for SGLang that turns itself off and on at every decode step",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    packages=find_packages(
        include=["sglang_specv2", "sglang_specv2.*", "cuda_graphs", "cuda_graphs.*"]
    ),
    package_data={"sglang_specv2": ["models/**"], "sglang_specv2.cpu": ["site/*.py"]},
    python_requires=">=3.10,<3.13",
    install_requires=["nvidia-ml-py"],
    extras_require={
        "sglang": [f"sglang=={VERSIONS['SUPPORTED_SGLANG']}"],
        # What SGLang imports on a plain CPU; SGLang and torch are not among it (docs/operating.md).
        "cpu": requirements("cpu.txt"),
        "bench": ["aiohttp>=3.9", "matplotlib>=3.8", "requests>=2.30", "rich>=13"],
        "plots": ["matplotlib>=3.8", "rich>=13"],
        "test": ["pytest>=8", "hypothesis>=6"],
        "lint": ["ruff", "mypy"],
    },
    entry_points={
        "console_scripts": ["sglang-specv2 = sglang_specv2.cli.main:main"],
        "sglang.srt.plugins": ["specv2 = sglang_specv2.plugin:register"],
        "sglang.srt.platforms": ["specv2 = sglang_specv2.plugin:watch_imports"],
    },
    classifiers=[
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
