"""What the demo shows: the worker's state at a moment, and what happened since the last one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

NOT_YET = "–"
"""The mode before the first decode step."""


@dataclass(frozen=True)
class Snapshot:
    """The worker's state at a moment; counts are totals since the server started.

    Attributes:
        mode: of the last decode step, ``speculative`` or ``plain``, or :data:`NOT_YET`.
        batch_size: requests in the last decode step.
        verifies: requests verified, summed over speculative steps.
        accepted_drafts: drafts that those verifies accepted.
        plain_tokens: tokens that plain steps decoded.
        switches: from either mode to the other.
    """

    mode: str
    batch_size: int
    verifies: int
    accepted_drafts: int
    plain_tokens: int
    switches: int

    @property
    def tokens(self) -> int:
        """Decoded so far: bonus tokens of verifies, accepted drafts, tokens of plain steps."""
        return self.verifies + self.accepted_drafts + self.plain_tokens

    def accept_length_since(self, earlier: Snapshot) -> float | None:
        """Tokens per verify between two snapshots; None where nothing was verified."""
        verifies = self.verifies - earlier.verifies
        accepted = self.accepted_drafts - earlier.accepted_drafts
        return 1.0 + accepted / verifies if verifies else None


@dataclass(frozen=True)
class Sample:
    """One point of the demo's story.

    Attributes:
        seconds: since the load began.
        clients: that ask at this moment.
        state: the worker's state.
        accept_length: tokens per verify since the sample before; None without a verify.
        tokens_s: tokens a second since the sample before, on this CPU.
    """

    seconds: float
    clients: int
    state: Snapshot
    accept_length: float | None
    tokens_s: float


class Sampler:
    """Turns snapshots into samples; its clock starts when it is made."""

    def __init__(
        self, snapshot: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._snapshot, self._clock = snapshot, clock
        self._last = snapshot()
        self._began = self._last_time = clock()

    def take(self, clients: int) -> Sample:
        """A sample of now, while ``clients`` ask."""
        state, now = self._snapshot(), self._clock()
        sample = Sample(
            seconds=now - self._began,
            clients=clients,
            state=state,
            accept_length=state.accept_length_since(self._last),
            tokens_s=(state.tokens - self._last.tokens) / (now - self._last_time),
        )
        self._last, self._last_time = state, now
        return sample
