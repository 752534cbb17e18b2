"""Changes the policy of a running server, through SGLang's own ``/set_internal_state``.

A request reaches every rank between the same two steps, because SGLang hands requests on to all
ranks at once. Keys that are not ours stay SGLang's. A refusal is told with its reason: the
scheduler keeps it, and the process that answers HTTP asks for it.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

from sglang_specv2.errors import ConfigError
from sglang_specv2.introspection import REFUSAL_ATTRIBUTE, REFUSAL_KEY
from sglang_specv2.policy.control import PREFIX, SETTABLE

logger = logging.getLogger(__name__)

_KEYS = frozenset(PREFIX + field for field in SETTABLE)


def change(original: Callable[..., Any], scheduler: Any, recv_req: Any) -> Any:
    """Around ``Scheduler.set_internal_state``."""
    ours = {key: value for key, value in recv_req.server_args.items() if key in _KEYS}
    if not ours:
        return original(scheduler, recv_req)
    from sglang.srt.managers.io_struct import SetInternalStateReqOutput

    worker = scheduler.draft_worker
    setattr(scheduler, REFUSAL_ATTRIBUTE, None)
    try:
        if not hasattr(worker, "specv2_change"):
            raise ConfigError(
                f"{', '.join(ours)}: expected a server whose worker is sglang-specv2's, got one "
                "that speculates otherwise or not at all; see `sglang-specv2 doctor`"
            )
        worker.specv2_check(ours)
        theirs = copy.copy(recv_req)
        theirs.server_args = {k: v for k, v in recv_req.server_args.items() if k not in ours}
        answer = original(scheduler, theirs) if theirs.server_args else None
        if answer is not None and not answer.updated:
            return answer
        worker.specv2_change(ours)
    except ConfigError as error:
        logger.warning("Refused to change the policy: %s", error)
        setattr(scheduler, REFUSAL_ATTRIBUTE, str(error))
        return SetInternalStateReqOutput(updated=False)
    return SetInternalStateReqOutput(updated=True)


async def answer(original: Callable[..., Any], manager: Any, obj: Any) -> Any:
    """Around ``set_internal_state`` of the process that answers HTTP: a refusal is status 400.

    Raises:
        HTTPException: a scheduler refused one of our keys; the detail is its reason.
    """
    updated = await original(manager, obj)
    if all(updated) or not _KEYS.intersection(obj.server_args):
        return updated
    from fastapi import HTTPException

    for state in await manager.get_internal_state():
        if state.get(REFUSAL_KEY):
            raise HTTPException(status_code=400, detail=state[REFUSAL_KEY])
    return updated


AROUND: dict[str, Callable[..., Any]] = {
    "sglang.srt.managers.scheduler.Scheduler.set_internal_state": change,
    "sglang.srt.managers.tokenizer_control_mixin.TokenizerControlMixin.set_internal_state": answer,
}
"""Dotted path in SGLang → the function that goes around it."""
