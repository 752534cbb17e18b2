"""Shows the worker's state through SGLang's own ``/server_info`` and ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STATE_KEY = "speculative_dynamic_state"
REFUSAL_KEY = "speculative_dynamic_refusal"
"""Why the last change of the policy was refused; absent after one that was accepted."""

REFUSAL_ATTRIBUTE = "specv2_refusal"


def internal_state(original: Callable[..., Any], scheduler: Any, recv_req: Any) -> Any:
    """Around ``Scheduler.get_internal_state``: adds the worker's status under :data:`STATE_KEY`."""
    output = original(scheduler, recv_req)
    status = getattr(scheduler.draft_worker, "specv2_status", None)
    if status is not None:
        output.internal_state[STATE_KEY] = status()
    refusal = getattr(scheduler, REFUSAL_ATTRIBUTE, None)
    if refusal is not None:
        output.internal_state[REFUSAL_KEY] = refusal
    return output


def start_metrics(original: Callable[..., Any], reporter: Any) -> None:
    """Around ``SchedulerMetricsReporter.__post_init__``: where SGLang keeps metrics, so do we."""
    original(reporter)
    use_metrics = getattr(reporter.scheduler.draft_worker, "specv2_use_metrics", None)
    if use_metrics is not None and reporter.current_scheduler_metrics_enabled:
        use_metrics(reporter.metrics_collector.labels)


AROUND: dict[str, Callable[..., Any]] = {
    "sglang.srt.managers.scheduler.Scheduler.get_internal_state": internal_state,
    "sglang.srt.managers.scheduler_components.metrics_reporter"
    ".SchedulerMetricsReporter.__post_init__": start_metrics,
}
"""Dotted path in SGLang → the function that goes around it."""
