"""Averages that forget, and lean on a prior until enough was seen."""

from __future__ import annotations

from dataclasses import dataclass


def bucket_of(batch_size: int) -> int:
    """Batch sizes are told apart by powers of two; never 0."""
    return batch_size.bit_length()


@dataclass
class FadingMean:
    """Mean of what was added; what is long ago counts less.

    Attributes:
        total, seen: of what was added, faded.
        age: in half-lives, how far it has faded.
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

    def bring_to(self, age: float) -> None:
        """Fade by a half for each half-life since the last time."""
        if age != self.age:
            self.fade(0.5 ** (age - self.age))
            self.age = age

    def add(self, total: float, seen: float) -> None:
        self.total += total
        self.seen += seen

    def estimate(self, prior: float, weight: float) -> float:
        """The mean, with a prior that counts as much as ``weight`` things seen."""
        return (self.total + prior * weight) / (self.seen + weight)
