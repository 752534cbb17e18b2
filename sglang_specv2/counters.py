"""Counts of what the worker did, for people and for metrics. Plain Python, read at any moment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class StepCounters:
    """Totals since start.

    Attributes:
        steps: decode steps by the family that ran them (``speculative``, ``plain``,
            ``plain_eager`` …).
        seconds: wall time from one decode step to the next, by mode; prefills between count for
            neither.
        switches: switches by the mode switched to.
        verifies: requests verified, summed over speculative steps.
        accepted_drafts: drafts accepted by those verifies.
        plain_tokens: tokens decoded by plain steps.
        resumes: speculative steps that first needed a draft forward for rows left pending.
        nan_drafts: requests verified whose draft had come out NaN, in those speculative steps that
            are looked at (``NAN_CHECK_STEPS``).
    """

    steps: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: {"speculative": 0.0, "plain": 0.0})
    switches: Counter[str] = field(default_factory=Counter)
    verifies: int = 0
    accepted_drafts: int = 0
    plain_tokens: int = 0
    resumes: int = 0
    nan_drafts: int = 0

    def verified(self, accepted_drafts_per_request: list[int]) -> None:
        """Enter the outcome of one speculative step."""
        self.verifies += len(accepted_drafts_per_request)
        self.accepted_drafts += sum(accepted_drafts_per_request)

    @property
    def accept_length(self) -> float | None:
        """Tokens per verify, drafts plus bonus; None before the first."""
        return 1.0 + self.accepted_drafts / self.verifies if self.verifies else None

    def as_dict(self) -> dict[str, Any]:
        """A copy of everything, with plain types."""
        return {
            "steps": dict(self.steps),
            "seconds": {mode: round(total, 6) for mode, total in self.seconds.items()},
            "switches": dict(self.switches),
            "verifies": self.verifies,
            "accepted_drafts": self.accepted_drafts,
            "accept_length": self.accept_length,
            "plain_tokens": self.plain_tokens,
            "resumes": self.resumes,
            "nan_drafts": self.nan_drafts,
        }
