"""Compares the installed SGLang with what :mod:`sglang_specv2.seams` says we rely on.

It reads SGLang's source and imports nothing of it: that is quick, has no side effects, and works
where SGLang cannot be imported. Instance attributes are those assigned to ``self`` in any method.
"""

import ast
import functools
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from sglang_specv2.config import SWITCH
from sglang_specv2.errors import CompatibilityError
from sglang_specv2.seams import LEDGER, Seam
from sglang_specv2.version import SUPPORTED_SGLANG

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def check(ledger: Sequence[Seam] = LEDGER, root: Path | None = None) -> list[str]:
    """Differences between the supported SGLang and the one that would be imported, in words.

    Args:
        ledger: the names to look for.
        root: folder of the ``sglang`` package; found without importing it by default.
    """
    if root is None:
        return list(_installed_differences(tuple(ledger)))
    source = _Source(root)
    return [difference for seam in ledger if (difference := _difference(seam, source))]


def require() -> None:
    """Refuses an SGLang that differs.

    Raises:
        CompatibilityError: with every difference and the ways out.
    """
    differences = check()
    if differences:
        raise CompatibilityError(
            [
                "This SGLang is not the one sglang-specv2 is built for:",
                *(f"  - {difference}" for difference in differences),
                f"Install sglang=={SUPPORTED_SGLANG}, or a release of sglang-specv2 for this one; "
                f"{SWITCH}=0 serves with SGLang's own worker.",
            ]
        )


def installed_version() -> str | None:
    """The version of SGLang that is installed, without what follows a ``+``; None for none."""
    try:
        return version("sglang").partition("+")[0]
    except PackageNotFoundError:
        return None


@functools.cache
def _installed_differences(ledger: tuple[Seam, ...]) -> tuple[str, ...]:
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        return (f"SGLang: expected {SUPPORTED_SGLANG}, found none installed",)
    differences = check(ledger, Path(spec.submodule_search_locations[0]))
    installed = installed_version()
    if installed != SUPPORTED_SGLANG:
        differences.insert(0, f"SGLang: expected {SUPPORTED_SGLANG}, found {installed}")
    return tuple(differences)


def _difference(seam: Seam, source: "_Source") -> str | None:
    found = source.find(seam.path)
    if found is None:
        return f"{seam.path}: expected {seam.expected}, not found ({seam.use})"
    if _fits(seam.expected, found):
        return None
    return f"{seam.path}: expected {seam.expected}, found {found} ({seam.use})"


def _fits(expected: str, found: str) -> bool:
    if expected.endswith(", ...)"):
        return found == f"{expected[: -len(', ...)')]})" or found.startswith(expected[:-4])
    return expected == found


@dataclass(frozen=True)
class _Scope:
    """The body of a module or class, and the module it is in."""

    module: str
    node: ast.Module | ast.ClassDef


class _Source:
    """SGLang's source, looked up by dotted path."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, ast.Module] = {}
        self._resolving: set[str] = set()

    def find(self, path: str) -> str | None:
        """What a dotted path names: ``(parameters)``, ``class``, ``property`` or ``attribute``."""
        found = self._resolve(path)
        if isinstance(found, _Scope):
            return "class" if isinstance(found.node, ast.ClassDef) else "module"
        if isinstance(found, _Function):
            decorators = {ast.unparse(node).split(".")[-1] for node in found.decorator_list}
            if decorators & {"property", "cached_property"}:
                return "property"
            return _parameters(found.args)
        return None if found is None else "attribute"

    def _resolve(self, path: str) -> ast.AST | _Scope | None:
        if path in self._resolving:
            return None
        self._resolving.add(path)
        try:
            return self._look_up(path.split("."))
        finally:
            self._resolving.discard(path)

    def _look_up(self, parts: list[str]) -> ast.AST | _Scope | None:
        for length in range(len(parts), 0, -1):
            found: ast.AST | _Scope | None = self._module(".".join(parts[:length]))
            if found is not None:
                for name in parts[length:]:
                    found = self._member(found, name) if isinstance(found, _Scope) else None
                return found
        return None

    def _module(self, name: str) -> _Scope | None:
        package, *inner = name.split(".")
        if name not in self._modules:
            file = self._root.joinpath(*inner)
            candidates = (file.with_suffix(".py"), file / "__init__.py")
            existing = next((c for c in candidates if c.is_file()), None)
            if existing is None or package != "sglang":
                return None
            self._modules[name] = ast.parse(existing.read_text(encoding="utf-8"))
        return _Scope(name, self._modules[name])

    def _member(self, scope: _Scope, name: str) -> ast.AST | _Scope | None:
        imported = None
        for node in _statements(scope.node.body):
            if isinstance(node, _Function) and node.name == name:
                return node
            if isinstance(node, ast.ClassDef) and node.name == name:
                return _Scope(scope.module, node)
            if name in _assigned_names(node):
                return node
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        imported = f"{node.module}.{alias.name}"
        if imported is not None:
            return self._resolve(imported)
        if isinstance(scope.node, ast.ClassDef):
            return _instance_attribute(scope.node, name) or self._inherited(
                scope.module, scope.node, name
            )
        return None

    def _inherited(self, module: str, cls: ast.ClassDef, name: str) -> ast.AST | _Scope | None:
        for base in cls.bases:
            parent = self._resolve(f"{module}.{ast.unparse(base)}")
            found = self._member(parent, name) if isinstance(parent, _Scope) else None
            if found is not None:
                return found
        return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, also those under ``if``, ``try`` and ``with``."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With) and hasattr(node, block):
                yield from _statements(getattr(node, block))


def _assigned_names(node: ast.AST) -> set[str]:
    return {target.id for target in _targets(node) if isinstance(target, ast.Name)}


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def _instance_attribute(cls: ast.ClassDef, name: str) -> ast.AST | None:
    for method in cls.body:
        if not isinstance(method, _Function) or not method.args.args:
            continue
        receiver = method.args.args[0].arg
        for node in ast.walk(method):
            for target in _targets(node):
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr == name
                    and isinstance(target.value, ast.Name)
                    and target.value.id == receiver
                ):
                    return node
    return None


def _parameters(arguments: ast.arguments) -> str:
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    if arguments.vararg:
        names.append(f"*{arguments.vararg.arg}")
    elif arguments.kwonlyargs:
        names.append("*")
    names += [argument.arg for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        names.append(f"**{arguments.kwarg.arg}")
    return f"({', '.join(names)})"
