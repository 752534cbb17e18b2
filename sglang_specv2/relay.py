"""Relays a plain step's rows to the next step without what they do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def relay_payload(
    original: Callable[..., Any], scheduler: Any, future_indices: Any, batch_result: Any
) -> Any:
    """Around ``Scheduler._relay_forward_payload``, which writes a whole proposal for every row.

    A pending row has none: its token and the mark of a pending row
    (:mod:`sglang_specv2.draft_sync.proposals`) are all that the next step reads.
    """
    future_map = scheduler.future_map
    if not getattr(batch_result, "pending", False) or not future_map._forward_buf_initialized:
        return original(scheduler, future_indices, batch_result)
    from sglang_specv2.step_ops import relay

    relay(
        batch_result.next_draft_input.bonus_tokens,
        future_indices,
        future_map.output_tokens_buf,
        future_map.topk_p_buf,
    )
    return None


AROUND: dict[str, Callable[..., Any]] = {
    "sglang.srt.managers.scheduler.Scheduler._relay_forward_payload": relay_payload,
}
"""Dotted path in SGLang → the function that goes around it."""
