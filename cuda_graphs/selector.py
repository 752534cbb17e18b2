"""From a mode and a live batch size to what runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from cuda_graphs.errors import SelectionError
from cuda_graphs.family import Family
from cuda_graphs.key import GraphKey
from cuda_graphs.sizes import require_size


@dataclass(frozen=True)
class Selection:
    """What runs for one batch.

    Attributes:
        key: the family's name and the rows that are computed.
        family: the family that runs.
        batch_size: live rows.
        padded_batch_size: rows that are computed; ``batch_size`` when eager.
        eager: whether it runs without a graph.
        reason: why this one, in words.
    """

    key: GraphKey
    family: Family
    batch_size: int
    padded_batch_size: int
    eager: bool
    reason: str

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """``family.run(batch_size, ...)``."""
        return self.family.run(self.batch_size, *args, **kwargs)


class Selector:
    """Holds a family per mode, each with an eager one for batches it has no graph for.

    Attributes:
        selections: how often each key was selected.
        fallbacks: those of them that were eager.
    """

    def __init__(self) -> None:
        self.selections: Counter[GraphKey] = Counter()
        self.fallbacks: Counter[GraphKey] = Counter()
        self._families: dict[Hashable, tuple[Family, Family | None]] = {}
        self._made: dict[tuple[Hashable, int], Selection] = {}

    @property
    def modes(self) -> tuple[Hashable, ...]:
        """The registered modes, in order."""
        return tuple(self._families)

    def register(self, mode: Hashable, family: Family, eager: Family | None = None) -> None:
        """Let ``family`` serve ``mode``.

        Args:
            mode: any hashable value.
            family: runs the batches that its sizes hold; all of them when it has no sizes.
            eager: a family without sizes, for batches above the largest size.

        Raises:
            SelectionError: the mode is taken, two families have one name, or ``eager`` has sizes.
        """
        if mode in self._families:
            raise SelectionError(
                f"mode {mode!r}: expected one registration, got a second with family "
                f"{family.name!r}; it is served by {self._families[mode][0].name!r}, "
                "register another mode or make a new selector"
            )
        if eager is not None and len(eager.sizes):
            raise SelectionError(
                f"mode {mode!r}: expected an eager family without capture sizes, got "
                f"{eager.name!r} with {list(eager.sizes)}; pass one that runs any batch size"
            )
        added = [family] if eager is None else [family, eager]
        known = [held for pair in self._families.values() for held in pair if held is not None]
        for index, one in enumerate(added):
            for other in known + added[:index]:
                if other.name == one.name and other is not one:
                    raise SelectionError(
                        f"mode {mode!r}: expected a name that no other family has, got "
                        f"{one.name!r} twice; keys and counters would mix, rename one"
                    )
        self._families[mode] = (family, eager)

    def select(self, mode: Hashable, batch_size: int) -> Selection:
        """Choose what runs for ``batch_size`` live rows, and count the choice.

        Raises:
            SelectionError: the mode is unknown, or the batch is above the largest captured size
                and the mode has no eager family.
            SizeError: ``batch_size`` is below 1.
        """
        require_size(batch_size)
        selection = self._made.get((mode, batch_size))
        if selection is None:
            selection = self._made[mode, batch_size] = self._select(mode, batch_size)
        if selection.eager:
            self.fallbacks[selection.key] += 1
        self.selections[selection.key] += 1
        return selection

    def _select(self, mode: Hashable, batch_size: int) -> Selection:
        if mode not in self._families:
            raise SelectionError(
                f"mode {mode!r}: expected one of {list(self._families)}, got no family for it; "
                "register() one"
            )
        family, eager = self._families[mode]
        padded = family.sizes.pad(batch_size)
        if padded is None:
            return self._select_eager(mode, family, eager, batch_size)
        reason = (
            f"batch size {batch_size} is a captured size"
            if padded == batch_size
            else f"batch size {batch_size} is padded to the captured size {padded}"
        )
        key = GraphKey(family.name, padded)
        return Selection(key, family, batch_size, padded, eager=False, reason=reason)

    def _select_eager(
        self, mode: Hashable, family: Family, eager: Family | None, batch_size: int
    ) -> Selection:
        if not len(family.sizes):
            runs, reason = family, f"family {family.name!r} has no captured sizes"
        elif eager is not None:
            runs = eager
            reason = (
                f"batch size {batch_size} is above the largest captured size {family.sizes.largest}"
            )
        else:
            raise SelectionError(
                f"mode {mode!r}: expected a batch size of at most {family.sizes.largest}, the "
                f"largest captured size of {family.name!r}, got {batch_size}; "
                "register() an eager family beside it, or capture larger sizes"
            )
        key = GraphKey(runs.name, batch_size)
        return Selection(key, runs, batch_size, batch_size, eager=True, reason=reason)
