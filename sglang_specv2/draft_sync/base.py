"""The contract between a decode step and whatever keeps the draft in step with it.

Vocabulary. The draft's KV entry of position t is computed from the target's hidden state of t and
the embedding of token t+1. A plain step processes one position t per request, so it ends knowing
both, and leaves the entry of t to be written: the row is *pending*. So is the last row of a prefill
while decode is plain. A row whose last step was a verify, a full draft extend or the draft's own
prefill has its entry and its proposal (the draft's guess for token t+2): it is *in sync*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch


class DraftSync(ABC):
    """Keeps the draft's KV cache in step with plain decode. One instance per worker.

    Its methods run on the host around a step, on the forward stream.
    """

    mode: str

    leaves_pending = False
    """Whether a plain step's rows have no proposal, so that only their token need be relayed."""

    def reset(self) -> None:
        """Forget everything pending, for example what a calibration's made-up requests left."""
        return None

    def catch_up(self) -> None:
        """Write every pending entry, if there is any; called before the draft's KV cache is
        read."""
        return None

    @abstractmethod
    def after_plain_step(
        self,
        batch: Any,
        out_cache_loc: torch.Tensor,
        hidden_states: torch.Tensor,
        next_token_ids: torch.Tensor,
        next_draft_input: Any,
    ) -> bool:
        """Fill the draft state that is relayed to the next step.

        Args:
            batch: SGLang's ScheduleBatch, as it was before the step (``seq_lens`` without the new
                token).
            out_cache_loc: [bs], int64, KV slot of the position just processed.
            hidden_states: [bs, width], of the position just processed.
            next_token_ids: [bs], integer, just sampled.
            next_draft_input: EagleDraftInput whose proposal fields are to be set.

        Returns:
            Whether the draft's runner, not the target's, was the last to read the batch's shared
            buffers.
        """

    def prefill(self, batch: Any, hidden_states: torch.Tensor, next_token_ids: torch.Tensor) -> Any:
        """The draft's part of a prefill while speculation is off, cheaper than the draft's own.

        Returns:
            The EagleDraftInput to relay, or None when the draft's own prefill is to run, behind
            :meth:`catch_up`.
        """
        return None

    @property
    def must_resume(self) -> bool:
        """Whether rows may lack a proposal, so that a speculative step first has to resume."""
        return False

    def resume(self, batch: Any) -> None:
        """Give every row of ``batch.spec_info`` a proposal, by a forward of the draft."""
        return None
