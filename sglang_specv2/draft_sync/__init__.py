"""How the draft's KV cache follows while speculation is off.

:mod:`~sglang_specv2.draft_sync.choice` decides (and says why) without importing torch or SGLang;
the other modules do the work and are imported by the worker only.
"""

from sglang_specv2.draft_sync.choice import SyncChoice, choose, explain_mode

__all__ = ["SyncChoice", "choose", "explain_mode"]
