"""Forced switches, whatever the batch: what tests drive a server with."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import count, repeat

from sglang_specv2.errors import ConfigError
from sglang_specv2.policy.base import Cause, Decision, Mode, require_live

_RANDOM_SWITCH_PROBABILITY = 1 / 3


class SchedulePolicy:
    """Switches at fixed or at seeded random steps; the first step speculates.

    Args:
        schedule: ``every:K`` switches after each K steps; ``random:SEED`` switches before each
            step but the first with probability 1/3, from a generator of its own.

    Raises:
        ConfigError: ``schedule`` is neither.
    """

    name = "schedule"

    def __init__(self, schedule: str) -> None:
        self.schedule = schedule
        self._switches = _parse(schedule)
        self._mode: Mode | None = None
        self._step = 0

    def decide(self, batch_size: int, context_tokens: int = 0) -> Decision:
        """See :class:`~sglang_specv2.policy.base.Policy`."""
        require_live(batch_size)
        if self._mode is None:
            self._mode, switched = Mode.SPECULATIVE, False
        else:
            switched = next(self._switches)
        if switched:
            self._mode = self._mode.other
        reason = f"step {self._step} of the schedule {self.schedule!r}"
        self._step += 1
        return Decision(self._mode, switched, reason, cause=Cause.SCHEDULE)


def _parse(schedule: str) -> Iterator[bool]:
    """Whether to switch, for each step but the first."""
    if not re.fullmatch(r"every:[1-9][0-9]*|random:[0-9]+", str(schedule)):
        raise ConfigError(
            f"test schedule: expected every:STEPS (at least 1) or random:SEED, got {schedule!r}; "
            "write, for example, every:3"
        )
    form, number = schedule.split(":")
    if form == "every":
        return (step % int(number) == 0 for step in count(1))
    generator = random.Random(int(number))
    return (generator.random() < _RANDOM_SWITCH_PROBABILITY for _ in repeat(None))
