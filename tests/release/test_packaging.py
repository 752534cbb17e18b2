"""What `python -m build` makes, and what becomes of it beside SGLang and nothing else."""

import email.message
import email.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from sglang_specv2.version import SUPPORTED_SGLANG, __version__

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("cuda_graphs", "sglang_specv2", "requirements")


@dataclass
class Built:
    """A source distribution, the wheel made from it, and what the build said."""

    sdist: Path
    wheel: Path
    output: str

    @property
    def metadata(self) -> email.message.Message:
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
            return email.parser.Parser().parsestr(wheel.read(name).decode())

    @property
    def names(self) -> set[str]:
        """Files of the wheel."""
        with zipfile.ZipFile(self.wheel) as wheel:
            return set(wheel.namelist())


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.py", "pyproject.toml", "MANIFEST.in"):
        shutil.copy(ROOT / file, source)
    for file in ("README.md", "CHANGELOG.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / file, source)
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)],
        cwd=source,
        env=without("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist, wheel, done.stdout + done.stderr)


def without(*variables):
    """This process's environment less some variables; ``PYTHONPATH`` leads to the clone."""
    return {name: value for name, value in os.environ.items() if name not in variables}


def test_the_build_has_nothing_to_complain_of(built):
    assert re.findall(r"(?i)^.*(?:warning|deprecat).*$", built.output, re.M) == []


def test_the_wheel_holds_the_packages_and_their_data_and_nothing_else(built):
    tops = {name.split("/")[0] for name in built.names}
    assert tops == {"cuda_graphs", "sglang_specv2", f"sglang_specv2-{__version__}.dist-info"}
    expected = {
        str(file.relative_to(ROOT))
        for package in ("cuda_graphs", "sglang_specv2")
        for file in (ROOT / package).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {name for name in built.names if ".dist-info/" not in name} == expected
    for file in ("LICENSE", "NOTICE"):
        assert f"sglang_specv2-{__version__}.dist-info/licenses/{file}" in built.names


def test_the_source_distribution_is_enough_to_build_from(built):
    with tarfile.open(built.sdist) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"setup.py", "README.md", "CHANGELOG.md", "NOTICE", "requirements/cpu.txt"} <= names


def test_the_metadata(built):
    metadata = built.metadata
    assert metadata["Version"] == __version__
    assert metadata["License"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.10,<3.13"
    assert "speculation" in metadata.get_payload()


def test_nothing_that_is_required_could_replace_torch_or_sglang(built):
    required = built.metadata.get_all("Requires-Dist")
    always = [line for line in required if "extra ==" not in line]
    assert always == ["nvidia-ml-py"]
    assert not [line for line in required if re.match(r"torch\b", line)]
    sglang = [line for line in required if re.match(r"sglang\b", line)]
    assert sglang == [f'sglang=={SUPPORTED_SGLANG}; extra == "sglang"']
    assert {"cpu", "bench", "plots"} <= set(built.metadata.get_all("Provides-Extra"))


def test_installing_it_with_its_extras_changes_no_package_that_is_there(built):
    resolved = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--no-index"),
            *("--report", "-", f"{built.wheel}[bench,plots]"),
        ],
        env=without("PYTHONPATH"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert resolved.returncode == 0, resolved.stderr
    report = json.loads(resolved.stdout)["install"]
    assert [item["metadata"]["name"] for item in report] == ["sglang-specv2"]


def test_the_version_stands_in_one_place():
    declared = re.compile(r"(?<![\d.])" + re.escape(__version__) + r"(?![\d.])")
    files = ["setup.py", "pyproject.toml", "Makefile", "mkdocs.yml", "README.md"]
    files += ["docker/Dockerfile", "docker/Dockerfile.cpu", "docker/compose.yaml"]
    found = [file for file in files if declared.search((ROOT / file).read_text(encoding="utf-8"))]
    packages = [*(ROOT / "sglang_specv2").rglob("*.py"), *(ROOT / "cuda_graphs").rglob("*.py")]
    found += [f.name for f in packages if declared.search(f.read_text(encoding="utf-8"))]
    assert found == ["version.py"]


def test_the_changelog_keeps_its_form():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.startswith("# Changelog\n")
    assert "keepachangelog.com" in text
    versions = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", text, re.M)
    assert versions[0] == ("Unreleased", "")
    assert all(date for _, date in versions[1:])
    assert len(re.findall(r"^## ", text, re.M)) == len(versions)
    kinds = set(re.findall(r"^### (.+)$", text, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment of its own that holds all that this one holds: SGLang, and nothing of ours."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "sglang.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    return folder


def run_in(environment, *command):
    return subprocess.run(
        command,
        env=without("PYTHONPATH")
        | {"PATH": f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        | {"SGLANG_SPECV2_CPU": "", "PYTHONWARNINGS": "ignore"},
        cwd=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_in_an_environment_with_sglang_the_plugin_is_found(built, environment):
    done = run_in(environment, ROOT / "docker" / "install.sh", built.wheel.parent)
    assert done.returncode == 0, done.stderr
    assert f"unchanged: sglang=={SUPPORTED_SGLANG}" in done.stdout
    assert "unchanged: torch==" in done.stdout

    done = run_in(environment, ROOT / "docker" / "verify.sh", __version__)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "choice of the worker: in place" in done.stdout

    code = "import sglang_specv2, cuda_graphs; print(sglang_specv2.__file__, cuda_graphs.__file__)"
    for file in run_in(environment, "python3", "-c", code).stdout.split():
        assert Path(file).is_relative_to(environment)


def test_an_image_s_label_has_to_be_the_version(built, environment):
    done = run_in(environment, ROOT / "docker" / "verify.sh", "9.9.9")
    assert done.returncode != 0
    assert f"expected sglang-specv2 9.9.9, as the label says, found {__version__}" in done.stderr


def test_an_installation_that_changes_torch_fails(tmp_path):
    """With a pip that installs another torch beside the wheel."""
    (tmp_path / "sglang_specv2-1-py3-none-any.whl").touch()
    python = tmp_path / "python3"
    installed = tmp_path / "installed"
    installed.write_text("sglang==1\ntorch==1\n")
    python.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f"*list*) cat {installed} ;;\n"
        f"*install*) printf 'sglang==1\\nsglang-specv2==1\\ntorch==2\\n' > {installed} ;;\n"
        "esac\n"
    )
    python.chmod(0o755)

    done = subprocess.run(
        [ROOT / "docker" / "install.sh", tmp_path],
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "expected every package as it was" in done.stderr
    assert "< torch==1\n> torch==2" in done.stderr
