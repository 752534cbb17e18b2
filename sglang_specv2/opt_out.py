"""Requests that ask not to be speculated on: ``custom_params`` with ``{"speculative": false}``.

A step has one mode for its whole batch. Where every request opted out, it is plain; in a mixed
batch the requests that opted out go along with the others, and what they accept is not counted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

logger = logging.getLogger(__name__)

KEY = "speculative"


def opted_out(request: Any) -> bool:
    """Whether one of SGLang's requests carries ``{"speculative": false}``."""
    custom = request.sampling_params.custom_params
    asked = custom.get(KEY) if isinstance(custom, dict) else None
    if asked is not None and not isinstance(asked, bool):
        _tell(repr(asked)[:80])
    return asked is False


@lru_cache(maxsize=16)
def _tell(asked: str) -> None:
    """A line for each value, not for each request and step."""
    logger.warning(
        'custom_params: expected "%s" to be true or false, got %s; such requests are treated like '
        "any other.",
        KEY,
        asked,
    )


def counting(requests: Sequence[Any], accepted: Sequence[int]) -> list[int]:
    """The outcomes of those that did not opt out."""
    return [
        drafts for request, drafts in zip(requests, accepted, strict=True) if not opted_out(request)
    ]
