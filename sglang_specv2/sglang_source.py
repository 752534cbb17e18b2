"""Looks names up in SGLang's source.

Nothing of SGLang is imported: that is quick, has no side effects, and works where SGLang cannot be
imported. Instance attributes are those assigned to ``self`` in any method.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import resolve_name
from pathlib import Path

_Function = ast.FunctionDef | ast.AsyncFunctionDef

_ALWAYS_RUN = ("body", "orelse", "finalbody")
_ANYWHERE = (*_ALWAYS_RUN, "handlers", "cases")


@dataclass(eq=False)
class _Scope:
    """A module, or a class in it; ``package`` is what relative imports start from."""

    module: str
    package: str
    node: ast.Module | ast.ClassDef

    @cached_property
    def members(self) -> "dict[str, _Named]":
        """What the body defines; the first where a name is defined twice."""
        found: dict[str, _Named] = {}
        for node in _statements(self.node.body, _ALWAYS_RUN):
            if isinstance(node, _Function):
                found.setdefault(node.name, node)
            elif isinstance(node, ast.ClassDef):
                found.setdefault(node.name, _Scope(self.module, self.package, node))
            else:
                for target in _targets(node):
                    if isinstance(target, ast.Name):
                        found.setdefault(target.id, node)
        return found

    @cached_property
    def imports(self) -> dict[str, str]:
        """The dotted path behind each name that the body imports from somewhere."""
        return {
            alias.asname or alias.name: f"{_imported_module(node, self.package)}.{alias.name}"
            for node in _statements(self.node.body, _ALWAYS_RUN)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cached_property
    def instance_attributes(self) -> dict[str, ast.AST]:
        """What methods of a class assign to the first of their parameters."""
        return {
            target.attr: node
            for method in self.node.body
            if isinstance(method, _Function) and method.args.args
            for node in _statements(method.body, _ANYWHERE)
            for target in _targets(node)
            if isinstance(target, ast.Attribute)
            and isinstance(target.value, ast.Name)
            and target.value.id == method.args.args[0].arg
        }


_Named = ast.AST | _Scope


class Source:
    """The source of a package ``sglang``.

    Args:
        root: the package's folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._resolved: dict[str, _Named | None] = {}

    def find(self, path: str) -> str | None:
        """What a dotted path names; None for nothing.

        Returns:
            ``(parameters)`` of a function, or ``module``, ``class``, ``property``, ``attribute``.
        """
        found = self._resolve(path)
        if isinstance(found, _Scope):
            return "class" if isinstance(found.node, ast.ClassDef) else "module"
        if isinstance(found, _Function):
            decorators = {ast.unparse(node).split(".")[-1] for node in found.decorator_list}
            if decorators & {"property", "cached_property"}:
                return "property"
            return _parameters(found.args)
        return None if found is None else "attribute"

    def _resolve(self, path: str) -> _Named | None:
        if path not in self._resolved:
            self._resolved[path] = None  # what a cycle of imports leads to
            owner, _, name = path.rpartition(".")
            found: _Named | None = self._module(path)
            if found is None and owner:
                scope = self._resolve(owner)
                found = self._member(scope, name) if isinstance(scope, _Scope) else None
            self._resolved[path] = found
        return self._resolved[path]

    def _module(self, path: str) -> _Scope | None:
        root, *names = path.split(".")
        if root != "sglang":
            return None
        folder = self._root.joinpath(*names)
        package = folder / "__init__.py"
        file = package if package.is_file() else folder.with_name(f"{folder.name}.py")
        if not file.is_file():
            return None
        tree = ast.parse(file.read_text(encoding="utf-8"))
        return _Scope(path, path if file == package else path.rpartition(".")[0], tree)

    def _member(self, scope: _Scope, name: str) -> _Named | None:
        if name in scope.members:
            return scope.members[name]
        if name in scope.imports:
            return self._resolve(scope.imports[name])
        if isinstance(scope.node, ast.Module):
            return None
        return scope.instance_attributes.get(name) or self._inherited(scope, scope.node, name)

    def _inherited(self, scope: _Scope, cls: ast.ClassDef, name: str) -> _Named | None:
        for base in cls.bases:
            path = f"{scope.module}.{ast.unparse(base)}"
            # A class may extend one of its own name that was imported before.
            if path == f"{scope.module}.{cls.name}":
                module = self._resolve(scope.module)
                path = module.imports.get(cls.name, "") if isinstance(module, _Scope) else ""
            parent = self._resolve(path)
            found = self._member(parent, name) if isinstance(parent, _Scope) else None
            if found is not None:
                return found
        return None


def _statements(body: Sequence[ast.AST], blocks: Sequence[str]) -> Iterator[ast.AST]:
    """The statements of a body and of the named blocks in it, but not of functions and classes."""
    for node in body:
        yield node
        if not isinstance(node, _Function | ast.ClassDef):
            for block in blocks:
                yield from _statements(getattr(node, block, ()), blocks)


def _imported_module(node: ast.ImportFrom, package: str) -> str:
    return resolve_name("." * node.level + (node.module or ""), package)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What an assignment assigns to; nothing for any other node."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else [target]
    elif isinstance(node, ast.AnnAssign):
        yield node.target


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
