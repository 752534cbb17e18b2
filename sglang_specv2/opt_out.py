"""Requests that ask not to be speculated on: ``custom_params`` with ``{"speculative": false}``.

A step has one mode for its whole batch. Where every request opted out, it is plain; in a mixed
batch the requests that opted out go along with the others, and what they accept is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

KEY = "speculative"


def opted_out(request: Any) -> bool:
    """Whether one of SGLang's requests carries ``{"speculative": false}``."""
    custom = request.sampling_params.custom_params
    return isinstance(custom, dict) and custom.get(KEY) is False


def counting(requests: Sequence[Any], accepted: Sequence[int]) -> list[int]:
    """The outcomes of those that did not opt out."""
    return [
        drafts for request, drafts in zip(requests, accepted, strict=True) if not opted_out(request)
    ]
