"""The API reference, from the docstrings of the public modules; their code is read, not run."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

MODULES = {
    "Graph families, without SGLang": ("cuda_graphs", "cuda_graphs.*"),
    "Configuration": ("sglang_specv2.config", "sglang_specv2.options"),
    "Policies": ("sglang_specv2.policy.*",),
    "Inside SGLang": (
        "sglang_specv2.plugin",
        "sglang_specv2.hook",
        "sglang_specv2.cpu",
        "sglang_specv2.compat",
        "sglang_specv2.errors",
    ),
}
"""Titles and their modules; ``.*`` are all those of a package."""

LONGEST_LINE = 70
SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises")


def page() -> str:
    """The whole page, as Markdown."""
    parts = ["# API\n", "From the docstrings. A name with a leading underscore is not public.\n"]
    for title, names in MODULES.items():
        parts.append(f"## {title}\n")
        for name in names:
            for module in _modules(name):
                parts += _module(module)
    return "\n".join(parts)


def _modules(name: str) -> list[str]:
    package = name.removesuffix(".*")
    if package == name:
        return [name]
    files = sorted((ROOT / package.replace(".", "/")).glob("[a-z]*.py"))
    return [f"{package}.{file.stem}" for file in files]


def _module(name: str) -> Iterator[str]:
    path = ROOT / name.replace(".", "/")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    yield f"### `{name}`\n"
    yield docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and _public(node):
            yield from _class(node)
        elif isinstance(node, ast.FunctionDef) and _public(node):
            yield from _function(node, "####")


def _class(node: ast.ClassDef) -> Iterator[str]:
    yield f"#### `{node.name}`\n"
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    yield f"```python\nclass {node.name}{f'({bases})' if bases else ''}{_constructor(node)}\n```\n"
    yield docstring(node)
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and _public(member) and ast.get_docstring(member):
            yield from _function(member, "#####")


def _constructor(node: ast.ClassDef) -> str:
    """What an instance is made of, on a line of its own; empty where nothing is given."""
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            return "\n\n" + _call(node.name, _parameters(member))
    if any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list):
        fields = [ast.unparse(member) for member in node.body if isinstance(member, ast.AnnAssign)]
        return "\n\n" + _call(node.name, fields)
    return ""


def _parameters(node: ast.FunctionDef) -> list[str]:
    """Its parameters as written, ``*`` and ``/`` among them, less ``self`` and ``cls``."""
    found, depth = [""], 0
    for character in ast.unparse(node.args):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [name for name in map(str.strip, found) if name not in ("", "self", "cls")]


def _call(name: str, parameters: list[str]) -> str:
    """``name(…)``, with a line for each parameter where one line would be long."""
    line = f"{name}({', '.join(parameters)})"
    if len(line) <= LONGEST_LINE:
        return line
    return f"{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + ")"


def _function(node: ast.FunctionDef, heading: str) -> Iterator[str]:
    is_property = any(ast.unparse(d).endswith("property") for d in node.decorator_list)
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    called = node.name if is_property else _call(node.name, _parameters(node))
    yield f"{heading} `{node.name}`\n"
    yield f"```python\n{called}{returns}\n```\n"
    yield docstring(node)


def _public(node: ast.ClassDef | ast.FunctionDef) -> bool:
    return not node.name.startswith("_")


def docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
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
    text = text.replace("\n:\n", "\n")
    return text + "\n"
