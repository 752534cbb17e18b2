"""The pages made from code are up to date, and the site builds without a warning."""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from sglang_specv2 import flags, options
from tools.documentation import api
from tools.documentation import flags as flags_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "docker/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_the_page_of_flags_is_what_the_parsers_say():
    assert flags_page.PAGE.read_text(encoding="utf-8") == flags_page.page(), "run `make docs`"


def test_a_new_flag_changes_the_page(monkeypatch):
    new = options.Option("new", "SGLANG_SPECV2_NEW", str, flag="--new", metavar="N", help="Is new.")
    more = (*options.OPTIONS, new)
    for module in (options, flags, flags_page):
        monkeypatch.setattr(module, "OPTIONS", more)

    assert "| `--new N` | `SGLANG_SPECV2_NEW` | Is new. |" in flags_page.page()


def test_no_flag_is_without_a_meaning():
    assert re.findall(r"^\|.*\| *\|$", flags_page.page(), re.M) == []


def test_flags_of_commands_are_told_with_their_values():
    parser = argparse.ArgumentParser()
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--mode", choices=("a", "b"))
    parser.add_argument("--size", metavar=("X", "Y"), nargs=2)
    parser.add_argument("--limit", default=7, help="at most (default: %(default)s), 90 %% of it")
    parser.add_argument("file")

    assert [flags_page.usage(action) for action in parser._actions[1:]] == [
        "`-v, --verbose`",
        "`--mode {a,b}`",
        "`--size X Y`",
        "`--limit LIMIT`",
        "`FILE`",
    ]
    assert flags_page.meaning(parser._actions[4]) == "at most (default: 7), 90 % of it"


def build_site(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_site_builds_without_a_warning(tmp_path):
    done = build_site(ROOT, tmp_path)

    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    for page in ("index.html", "flags/index.html", "containers/index.html", "changes/index.html"):
        assert (tmp_path / page).is_file()
    assert 'class="mermaid"' in (tmp_path / "how-it-works" / "index.html").read_text()
    reference = (tmp_path / "api" / "index.html").read_text()
    assert "GraphFamily" in reference
    assert "SpecV2Config" in reference
    # Files beside docs/ are no part of the site: their names are, without a link.
    assert 'href="../sglang_specv2' not in (tmp_path / "how-it-works" / "index.html").read_text()


def test_links_that_lead_nowhere_fail_the_build(tmp_path):
    for name in ("docs", "docker", "tools", "cuda_graphs", "sglang_specv2"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("models"))
    for name in ("mkdocs.yml", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / "limits.md").open("a") as page:
        page.write("\n[a](nowhere.md) [b](testing.md#nowhere) [c](../docker/README.md#nowhere)\n")

    done = build_site(tmp_path, tmp_path / "site")

    assert done.returncode != 0
    for target in ("nowhere.md", "testing.md#nowhere", "containers.md#nowhere"):
        assert f"'{target}'" in done.stderr


def test_every_page_is_in_the_navigation():
    class Loader(yaml.SafeLoader):
        """Knows mkdocs's tag for a Python name, which is of no interest here."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda *_: None)
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader)["nav"]
    listed = set(re.findall(r"[\w./-]+\.md", str(nav)))
    docs = ROOT / "docs"
    assert listed == {str(page.relative_to(docs)) for page in docs.rglob("*.md")} | {
        *("api.md", "containers.md", "changes.md")
    }


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_to_elsewhere_look_right(file):
    text = re.sub(r"```.*?```|`[^`]*`", "", file.read_text(encoding="utf-8"), flags=re.S)
    for address in re.findall(r"https?:[^\s)>\"']+", text):
        parts = urlsplit(address)
        if parts.hostname in ("localhost", "127.0.0.1"):
            continue
        assert parts.scheme == "https", address
        assert re.fullmatch(r"([a-z0-9-]+\.)+[a-z]{2,}", parts.hostname or ""), address


def test_the_reference_has_the_public_names_and_their_sections():
    reference = api.page()
    for words in (
        "### `cuda_graphs.selector`",
        "### `sglang_specv2.policy.threshold`",
        "class Selector",
        "**Raises**",
        "- `family`: name of the family.",
    ):
        assert words in reference
    assert ":class:" not in reference
    assert "#### `_" not in reference


def test_a_docstring_becomes_markdown():
    import ast

    node = ast.parse(
        'def f(a, b):\n    """Does :func:`g` of ``a``.\n\n    Args:\n        a: one\n'
        '            more.\n        b: two.\n\n    Raises:\n        ValueError: never.\n    """'
    ).body[0]
    assert api.docstring(node) == (
        "Does `g` of `a`.\n\n**Args**\n\n- `a`: one\n  more.\n- `b`: two.\n\n"
        "**Raises**\n\n- `ValueError`: never.\n"
    )
