"""The contract between a decode step and whatever keeps the draft in step with it.

Vocabulary. The draft's KV entry of position t is computed from the target's hidden state of t and
the embedding of token t+1. A plain step processes one position t per request, so it ends knowing
both, and leaves the entry of t to be written: the row is *pending*. A row whose last step was a
prefill, a verify or a full draft extend has its entry and its proposal (the draft's guess for
token t+2): it is *in sync*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


class DraftSync(ABC):
    """Keeps the draft's KV cache in step with plain decode. One instance per worker.

    ``branch`` and ``stage`` run inside the capture of the plain graphs (and inside the eager plain
    step); the other methods run on the host around a step, on the forward stream.
    """

    mode: str

    leaves_pending = False
    """Whether a plain step's rows have no proposal, so that only their token need be relayed."""

    def branch(self, rows: int) -> AbstractContextManager[None]:
        """Work that may run beside the target's forward of ``rows`` rows."""
        return nullcontext()

    def stage(
        self,
        hidden_states: torch.Tensor,  # [rows, width of the target's states that the draft reads]
        req_pool_indices: torch.Tensor,  # [rows], int64; 0 for padding
        out_cache_loc: torch.Tensor,  # [rows], int64; 0 for padding
        positions: torch.Tensor,  # [rows], int64
    ) -> None:
        """Keep what this forward leaves pending."""
        return None

    def reset(self) -> None:
        """Forget everything pending, for example what a graph capture staged."""
        return None

    def before_step(self, rows: int | None) -> None:
        """Called first in every step. ``rows`` is the padded size of the plain graph about to be
        replayed, or None when the step is anything else."""
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
            next_token_ids: [bs], int64, just sampled.
            next_draft_input: EagleDraftInput whose proposal fields are to be set.

        Returns:
            Whether the draft's runner, not the target's, was the last to read the batch's shared
            buffers.
        """

    def prefill(self, batch: Any, hidden_states: torch.Tensor, next_token_ids: torch.Tensor) -> Any:
        """The draft's part of a prefill while speculation is off, cheaper than the draft's own.

        Returns:
            The EagleDraftInput to relay, or None when the draft's own prefill is to run.
        """
        return None

    def before_speculative_step(self, batch: Any) -> bool:
        """Give every row of ``batch.spec_info`` a proposal.

        Returns:
            Whether a draft forward was needed.
        """
        return False
