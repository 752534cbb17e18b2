"""Which worker class SGLang constructs: ours exactly where it would have taken EAGLEWorkerV2.

``SpeculativeAlgorithm.create_worker`` is the narrow seam: the scheduler asks it once for the class.
Replacing the class EAGLEWorkerV2 itself would also reach SGLang's own subclasses of it.
"""

import sys
from collections.abc import Callable
from typing import Any

from sglang_specv2 import gates

SEAM = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"

_REPLACED_MODULE = "sglang.srt.speculative.eagle_worker_v2"
_REPLACED_CLASS = "EAGLEWorkerV2"


def choose(original: Callable[..., Any], algorithm: Any, server_args: Any) -> Any:
    """Goes around ``create_worker``: SpecV2Worker for EAGLEWorkerV2, else what SGLang chose.

    Raises:
        UnsupportedError: options of ours were given, and this server cannot follow them.
    """
    upstream = original(algorithm, server_args)
    found = gates.reasons(server_args)
    replaced = getattr(sys.modules.get(_REPLACED_MODULE), _REPLACED_CLASS, None)
    if not found and upstream is not replaced:
        found = [gates.unknown_worker(upstream)]
    if found:
        gates.refuse_or_leave(server_args, found)
        return upstream
    from sglang_specv2.worker import SpecV2Worker

    return SpecV2Worker
