"""What an entry of the ledger says."""

from collections.abc import Mapping
from typing import NamedTuple

RELIED_ON = "it does what we rely on, though our code does not name it"
"""``why`` of an entry whose name need not occur in our code."""


class Seam(NamedTuple):
    """A name of SGLang that we rely on.

    Attributes:
        path: where it is, dotted, from ``sglang``.
        expected: the parameter list of a function (``...`` at its end allows more), or one of
            ``class``, ``property`` and ``attribute`` (of a class, an instance or a module).
        use: what for.
        why: why by this name and not by a public interface.
        until: when the entry can go.
    """

    path: str
    expected: str
    use: str
    why: str
    until: str


def members(
    owner: str, names: Mapping[str, tuple[str, str]], *, why: str, until: str
) -> tuple[Seam, ...]:
    """Entries of one module or class.

    Args:
        owner: its dotted path.
        names: ``(expected, use)`` by name.
        why: the same for all.
        until: the same for all.
    """
    return tuple(
        Seam(f"{owner}.{name}", expected, use, why, until)
        for name, (expected, use) in names.items()
    )
