"""What our worker counts, between two moments, and in which mode it was seen meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sglang_specv2.benchmark.errors import ArmError
from sglang_specv2.introspection import STATE_KEY

PLAIN, SPECULATIVE = "plain", "speculative"


def worker_state(server_info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Our worker's state; None of another worker."""
    state: dict[str, Any] | None = server_info["internal_states"][0].get(STATE_KEY)
    return state


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What was counted between two states of one worker.

    ``steps_plain`` and ``steps_speculative`` include steps without a graph; ``accept_length`` is
    None where nothing was verified.
    """
    steps = Counter(after["steps"])
    steps.subtract(before["steps"])
    verifies = after["verifies"] - before["verifies"]
    accepted = after["accepted_drafts"] - before["accepted_drafts"]
    switches = sum(after["switches"].values()) - sum(before["switches"].values())
    return {
        **{
            f"steps_{mode}": sum(n for family, n in steps.items() if family.startswith(mode))
            for mode in (PLAIN, SPECULATIVE)
        },
        "steps_eager": sum(n for family, n in steps.items() if family.endswith("_eager")),
        "switches": switches,
        "resumes": after["resumes"] - before["resumes"],
        "verifies": verifies,
        "accepted_drafts": accepted,
        "plain_tokens": after["plain_tokens"] - before["plain_tokens"],
        "worker_accept_length": 1 + accepted / verifies if verifies else None,
    }


@dataclass
class Samples:
    """One answer of ``/server_info`` after the other.

    Attributes:
        states: (seconds on the client's clock, state of our worker or None).
        error: why looking ended before its time.
    """

    states: list[tuple[float, dict[str, Any] | None]] = field(default_factory=list)
    error: ArmError | None = None

    def time_share(self) -> dict[str, float] | None:
        """Share of the looks that found each mode; None of another worker."""
        modes = Counter(state["mode"] for _, state in self.states if state is not None)
        total = sum(modes.values())
        if not total:
            return None
        return {mode: modes[mode] / total for mode in (PLAIN, SPECULATIVE)}


@contextlib.contextmanager
def sampling(ask: Callable[[], Mapping[str, Any]], period_s: float) -> Iterator[Samples]:
    """Looks at a server every ``period_s`` while the body runs, first after half a period."""
    samples, over = Samples(), threading.Event()

    def look() -> None:
        wait_s = period_s / 2
        while not over.wait(wait_s):
            wait_s = period_s
            try:
                samples.states.append((time.perf_counter(), worker_state(ask())))
            except ArmError as error:
                samples.error = error
                return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
