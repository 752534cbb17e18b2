"""What mkdocs calls while it builds the site (mkdocs.yml).

The pages also have to read well in a clone, where links lead to files beside docs/. In the site
there are no such files, so those links become the names that they show.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.documentation import api  # noqa: E402

LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")

ELSEWHERE = {"docker/README.md": "containers.md", "CHANGELOG.md": "changes.md"}
"""Files outside docs/ that are pages of the site, and their names there."""


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that do not lie in docs/."""
    files.append(File.generated(config, "api.md", content=api.page()))
    for source, name in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=_as_if_in_docs(text, source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leads links to pages outside docs/ to their place in the site, and unlinks other files."""
    return LINK.sub(_link, markdown)


def _link(found: re.Match[str]) -> str:
    text, (path, hash_, anchor) = found[1], found[2].partition("#")
    if not path.startswith("../"):
        return found[0]
    name = ELSEWHERE.get(path.removeprefix("../"))
    return text if name is None else f"[{text}]({name}{hash_}{anchor})"


def _as_if_in_docs(text: str, source: str) -> str:
    """A page's links as they have to be for the page to lie in docs/."""
    folder = (ROOT / source).parent

    def moved(found: re.Match[str]) -> str:
        path, hash_, anchor = found[2].partition("#")
        if not path or "://" in path:
            return found[0]
        target = (folder / path).resolve().relative_to(ROOT)
        inside = target.parts[0] == "docs"
        path = "/".join(target.parts[1:]) if inside else f"../{target.as_posix()}"
        return f"[{found[1]}]({path}{hash_}{anchor})"

    return LINK.sub(moved, text)
