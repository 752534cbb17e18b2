"""How requests arrive: a level of one round, or a number of clients that changes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Load:
    """How requests arrive in a round.

    Attributes:
        kind: ``closed``: each of ``level`` clients sends the next request when it has its answer;
            ``poisson``: ``level`` requests a second arrive on average, whatever is answered.
        level: clients, or requests a second.
    """

    kind: str
    level: float

    @property
    def label(self) -> str:
        return f"C={self.level:g}" if self.kind == "closed" else f"{self.level:g}/s"


@dataclass(frozen=True)
class Phase:
    """``clients`` at once for ``seconds``."""

    clients: int
    seconds: float


def ramp(most: int, seconds: float) -> list[Phase]:
    """1, 2, 4 … up to ``most`` clients and down again, in ``seconds`` together."""
    up = [1]
    while up[-1] * 2 < most:
        up.append(up[-1] * 2)
    up.append(most)
    steps = [*up, *reversed(up[:-1])] if most > 1 else [1]
    return [Phase(clients, seconds / len(steps)) for clients in steps]


def square(most: int, seconds: float) -> list[Phase]:
    """From a 32nd of ``most`` clients to half of them at once and back, about every 5 seconds, but
    three times at least."""
    waves = max(3, round(seconds / 10))
    half = seconds / (2 * waves)
    low, high = max(1, most // 32), max(1, most // 2)
    return [phase for _ in range(waves) for phase in (Phase(low, half), Phase(high, half))]


TIMELINES = {"ramp": ramp, "square": square}
TIMELINE_TITLES = {"ramp": "ramp", "square": "square wave"}
