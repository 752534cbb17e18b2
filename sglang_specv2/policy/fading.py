"""Averages that forget, and lean on a prior until enough was seen."""

from __future__ import annotations

from dataclasses import dataclass

STALE = 8
"""What is known of other cases than the one that was observed fades so much slower."""


def bucket_of(batch_size: int) -> int:
    """Batch sizes are told apart by powers of two; never 0."""
    return batch_size.bit_length()


@dataclass
class FadingMean:
    """Mean of what was added; what is long ago counts less.

    Attributes:
        total, seen: of what was added, faded.
        age: in half-lives, how far it has faded. Reading leaves it alone: fading in two parts is
            rounded differently from fading in one, and all ranks must know the same.
    """

    total: float = 0.0
    seen: float = 0.0
    age: float = 0.0

    def fade(self, factor: float, least: float = 0.0) -> None:
        """What was added counts ``factor`` times as much, but together no less than ``least``."""
        if self.seen * factor < least:
            factor = min(1.0, least / self.seen)
        self.total *= factor
        self.seen *= factor

    def observed(self, age: float, older: float) -> None:
        """Fade to ``age``, and by ``older`` half-lives more, since this case was observed then;
        what is known of others gets older by the :data:`STALE` part of that."""
        self.fade(0.5 ** (age - self.age + older))
        self.age = age + older / STALE

    def add(self, total: float, seen: float) -> None:
        self.total += total
        self.seen += seen

    def estimate(self, prior: float, weight: float, age: float) -> float:
        """The mean at an age, with a prior that counts as much as ``weight`` things seen."""
        left = 0.5 ** (age - self.age)
        return (self.total * left + prior * weight) / (self.seen * left + weight)
