"""Wrapping a method of a class we do not own, once, and undoing it."""

import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any

from sglang_specv2.errors import CompatibilityError

Undo = Callable[[], None]

_wrappers: "weakref.WeakSet[Callable[..., Any]]" = weakref.WeakSet()


def is_wrapped(owner: type, name: str) -> bool:
    """Whether our wrapper is in place, also under wrappers that others put around it."""
    if name not in vars(owner):
        return False
    function = _function(vars(owner)[name])
    return inspect.unwrap(function, stop=_wrappers.__contains__) in _wrappers


def wrap(owner: type, name: str, around: Callable[..., Any]) -> Undo:
    """Replaces ``owner.name`` by ``around(original, *args, **kwargs)``; twice changes nothing.

    Static and class methods stay what they are. Undone, the original is back; where somebody has
    wrapped ours meanwhile, ours stays in the chain and only calls through.

    Raises:
        CompatibilityError: ``owner`` defines no such method.
    """
    if name not in vars(owner):
        raise CompatibilityError(f"{owner.__module__}.{owner.__qualname__}.{name} is not defined")
    if is_wrapped(owner, name):
        return lambda: None
    raw = vars(owner)[name]
    original = _function(raw)
    active = True

    @functools.wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs) if active else original(*args, **kwargs)

    _wrappers.add(wrapper)
    replacement = type(raw)(wrapper) if isinstance(raw, staticmethod | classmethod) else wrapper
    setattr(owner, name, replacement)

    def undo() -> None:
        nonlocal active
        active = False
        _wrappers.discard(wrapper)
        if vars(owner).get(name) is replacement:
            setattr(owner, name, raw)

    return undo


def _function(raw: Any) -> Any:
    return raw.__func__ if isinstance(raw, staticmethod | classmethod) else raw
