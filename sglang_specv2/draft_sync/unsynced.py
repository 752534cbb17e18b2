"""No sync: speculation resumes from holes in the draft's KV cache. To compare, not to serve."""

from __future__ import annotations

from typing import Any

import torch

from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.draft_sync.proposals import EmptyProposals


class Unsynced(DraftSync):
    """Relays empty proposals; tokens stay right because a verify corrects every draft."""

    mode = "off"

    def __init__(self, proposals: EmptyProposals) -> None:
        self._proposals = proposals

    def after_plain_step(
        self,
        batch: Any,
        out_cache_loc: torch.Tensor,
        hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        next_draft_input: Any,
    ) -> bool:
        self._proposals.fill(next_draft_input, next_token_ids.shape[0])
        return False
