"""The width of a draft extend's graphs, in rows per request."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def rows_per_request(draft_runner: Any, rows: int) -> Iterator[None]:
    """Let SGLang's runner of a draft extend see ``rows`` draft tokens, while it is built.

    It takes its width from the arguments the server was started with, which are read-only, so for
    that long the model runner shows a copy of them. Put back also when the capture raises.
    """
    arguments = draft_runner.server_args
    shown = copy.copy(arguments)
    vars(shown)["speculative_num_draft_tokens"] = rows
    draft_runner.server_args = shown
    try:
        yield
    finally:
        draft_runner.server_args = arguments
