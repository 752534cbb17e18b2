"""What a policy is: it decides, once per decode step, whether that step speculates."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from sglang_specv2.errors import BatchShapeError, ConfigError


class Mode(str, Enum):
    """How a decode step runs."""

    SPECULATIVE = "speculative"
    PLAIN = "plain"

    __str__ = str.__str__

    @property
    def other(self) -> Mode:
        """The mode that a switch leads to."""
        return Mode.PLAIN if self is Mode.SPECULATIVE else Mode.SPECULATIVE


@dataclass(frozen=True)
class Decision:
    """What one step does.

    Attributes:
        mode: how the step runs.
        switched: whether the mode differs from the step before; false at the first step.
        reason: why, in words and numbers.
    """

    mode: Mode
    switched: bool
    reason: str


class Policy(Protocol):
    """Decides from the sequence of batch sizes alone.

    Two instances that were built alike and saw the same calls have decided alike: every
    tensor-parallel rank keeps its own and all stay in step.
    """

    @property
    def name(self) -> str:
        """A short word for logs and metrics."""

    def decide(self, batch_size: int) -> Decision:
        """Decide the next decode step; one call is one step.

        Args:
            batch_size: live requests in the decode batch; waiting prefills do not count.

        Raises:
            BatchShapeError: ``batch_size`` is below 1.
        """


def require_live(batch_size: int) -> None:
    """Refuse a batch without requests.

    Raises:
        BatchShapeError: ``batch_size`` is below 1.
    """
    if batch_size < 1:
        raise BatchShapeError(
            f"batch size: expected at least 1, got {batch_size}; "
            "ask for a decision only when a request is decoded"
        )


def require_at_least(name: str, value: Any, least: int) -> int:
    """Return ``value`` if it is an int and not below ``least``.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"{name}: expected a whole number, at least {least}, got {value!r}; change it"
        )
    return value
