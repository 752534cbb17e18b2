"""Requests that ask not to be speculated on: ``custom_params`` with ``{"speculative": false}``.

A step has one mode for its whole batch. Where every request opted out, it is plain; in a mixed
batch the requests that opted out go along with the others, and what they accept is not counted.
"""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)

KEY = "speculative"

_MOST_TOLD = 16
_told: set[str] = set()
"""Values that were neither true nor false, in words. Clients choose them, so they are bounded."""


def opted_out(request: Any) -> bool:
    """Whether one of SGLang's requests carries ``{"speculative": false}``."""
    custom = request.sampling_params.custom_params
    asked = custom.get(KEY) if isinstance(custom, dict) else None
    if asked is not None and not isinstance(asked, bool):
        _tell(repr(asked)[:80])
    return asked is False


def _tell(asked: str) -> None:
    """A line for each value, not for each request and step, and for no more than a few."""
    if asked in _told or len(_told) == _MOST_TOLD:
        return
    _told.add(asked)
    logger.warning(
        'custom_params: expected "%s" to be true or false, got %s; such requests are treated like '
        "any other.",
        KEY,
        asked,
    )
