"""The API reference, from the docstrings of the public modules; their code is read, not run."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODULES = {
    "Graph families, without SGLang": (
        "cuda_graphs",
        "cuda_graphs.key",
        "cuda_graphs.sizes",
        "cuda_graphs.buffers",
        "cuda_graphs.rows",
        "cuda_graphs.graph",
        "cuda_graphs.pool",
        "cuda_graphs.family",
        "cuda_graphs.eager",
        "cuda_graphs.selector",
        "cuda_graphs.errors",
    ),
    "Configuration": ("sglang_specv2.config", "sglang_specv2.options"),
    "Policies": (
        "sglang_specv2.policy.base",
        "sglang_specv2.policy.threshold",
        "sglang_specv2.policy.fixed",
        "sglang_specv2.policy.schedule",
    ),
    "Inside SGLang": (
        "sglang_specv2.plugin",
        "sglang_specv2.hook",
        "sglang_specv2.cpu",
        "sglang_specv2.compat",
        "sglang_specv2.errors",
    ),
}

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")


def page() -> str:
    """The whole page, as Markdown."""
    parts = [
        "# API\n",
        "From the docstrings. A name with a leading underscore is not public.\n",
    ]
    for title, modules in MODULES.items():
        parts.append(f"## {title}\n")
        for module in modules:
            parts += _module(module)
    return "\n".join(parts)


def source(module: str) -> Path:
    """The file of a module or package of this repository."""
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _module(name: str) -> Iterator[str]:
    tree = ast.parse(source(name).read_text(encoding="utf-8"))
    yield f"### `{name}`\n"
    yield _docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _public(node):
            yield from _class(node)
        elif isinstance(node, ast.FunctionDef) and _public(node):
            yield from _function(node, "####")


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    yield f"#### class `{node.name}{f'({bases})' if bases else ''}`\n"
    yield _docstring(node)
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and _public(member) and ast.get_docstring(member):
            yield from _function(member, "#####")


def _function(node: ast.FunctionDef, heading: str) -> Iterator[str]:
    is_property = any(ast.unparse(d).endswith("property") for d in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    arguments = "" if is_property else f"({ast.unparse(node.args)})"
    yield f"{heading} `{node.name}`\n"
    yield f"```python\n{node.name}{arguments}{returns}\n```\n"
    yield _docstring(node)


def _public(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return not node.name.startswith("_")


def _docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """A docstring as Markdown: its sections become lists, its roles and literals become code."""
    lines: list[str] = []
    in_section = False
    for line in (ast.get_docstring(node) or "").splitlines():
        title = line.removesuffix(":")
        if line.endswith(":") and title in SECTIONS:
            in_section = True
            lines.append(f"**{title}**\n")
        elif in_section and line and not line.startswith(" "):
            in_section = False
            lines.append(line)
        elif in_section and re.match(r"    \S", line):
            entry = re.match(r"    (\*{0,2}[\w, .]+): (.*)", line)
            lines.append(f"- `{entry[1]}`: {entry[2]}" if entry else f"- {line.strip()}")
        elif in_section:
            lines.append(textwrap.dedent(line) if not line.strip() else f"  {line.strip()}")
        else:
            lines.append(line)
    text = "\n".join(lines)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`").replace("::\n", ":\n")
    return text + "\n"
