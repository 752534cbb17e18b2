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


class Cause(str, Enum):
    """What a decision goes back to, in a word that metrics are labelled with."""

    FIXED = "fixed"
    SCHEDULE = "schedule"
    BATCH_SIZE = "batch_size"
    ESTIMATE = "estimate"
    PROBE = "probe"
    OPT_OUT = "opt_out"

    __str__ = str.__str__


@dataclass(frozen=True)
class Decision:
    """What one step does.

    Attributes:
        mode: how the step runs.
        switched: whether the mode or the number of draft steps differs from the step before;
            false at the first step.
        reason: why, in words and numbers.
        steps: draft steps of a speculative step; None: as many as the server was started with.
        cause: what the decision goes back to.
    """

    mode: Mode
    switched: bool
    reason: str
    steps: int | None = None
    cause: Cause = Cause.FIXED


class Policy(Protocol):
    """Decides from what every tensor-parallel rank knows alike: the batch, and its past.

    Two instances that were built alike and saw the same calls have decided alike: every rank keeps
    its own and all stay in step.
    """

    @property
    def name(self) -> str:
        """A short word for logs and metrics."""

    def decide(self, batch_size: int, context_tokens: int = 0) -> Decision:
        """Decide the next decode step; one call is one step.

        Args:
            batch_size: live requests in the decode batch; waiting prefills do not count.
            context_tokens: tokens that these requests hold together, prompts and outputs.

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
