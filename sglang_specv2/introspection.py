"""Shows the worker's state through SGLang's own ``/server_info``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STATE_KEY = "speculative_dynamic_state"


def internal_state(original: Callable[..., Any], scheduler: Any, recv_req: Any) -> Any:
    """Around ``Scheduler.get_internal_state``: adds the worker's status under :data:`STATE_KEY`."""
    output = original(scheduler, recv_req)
    status = getattr(scheduler.draft_worker, "specv2_status", None)
    if status is not None:
        output.internal_state[STATE_KEY] = status()
    return output


AROUND: dict[str, Callable[..., Any]] = {
    "sglang.srt.managers.scheduler.Scheduler.get_internal_state": internal_state,
}
"""Dotted path in SGLang → the function that goes around it."""
