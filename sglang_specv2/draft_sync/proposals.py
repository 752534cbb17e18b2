"""What a plain step relays where a speculative step relays a proposal.

SGLang's FutureMap carries, by request slot, the draft's first proposal for the next step: its
probability, its token and the hidden state it came from. A plain step has none. It relays zeros,
and the zero probability is itself the mark of a pending row: a real proposal is the draft's most
likely token, whose probability is never zero. So which rows are pending travels with the rows,
through filter, merge and retraction, without a tensor of ours and without a device synchronisation.
"""

from __future__ import annotations

from typing import Any

import torch

NAN_CHECK_STEPS = 8


class EmptyProposals:
    """Zeros of the relayed shapes, made once.

    Args:
        max_rows: largest batch.
        topk: proposals per request.
        hidden_size: width of the draft's own hidden state.
        dtype: of the draft's hidden state.
        vocab_size: width of the relayed draft distribution, or None when it is not relayed
            (it is with rejection sampling).
        device: of the worker.
    """

    def __init__(
        self,
        max_rows: int,
        topk: int,
        hidden_size: int,
        dtype: torch.dtype,
        vocab_size: int | None,
        device: torch.device | str,
    ) -> None:
        self._probability = torch.zeros((max_rows, topk), dtype=torch.float32, device=device)
        self._index = torch.zeros((max_rows, topk), dtype=torch.int64, device=device)
        self._hidden = torch.zeros((1, hidden_size), dtype=dtype, device=device)
        self._distribution = (
            None
            if vocab_size is None
            else torch.zeros((1, vocab_size), dtype=torch.float32, device=device)
        )

    def fill(self, draft_input: Any, rows: int) -> None:
        """Set the proposal fields of an EagleDraftInput of ``rows`` requests."""
        draft_input.topk_p = self._probability[:rows]
        draft_input.topk_index = self._index[:rows]
        draft_input.hidden_states = self._hidden.expand(rows, -1)
        if self._distribution is not None:
            draft_input.draft_probs = self._distribution.expand(rows, -1)


def pending_rows(draft_input: Any) -> torch.Tensor:
    """Which rows of a draft input carry no proposal: ``[bs]``, bool."""
    return draft_input.topk_p[:, 0] == 0


class NanCheck:
    """Looks for drafts that came out NaN, in one speculative step of :data:`NAN_CHECK_STEPS`.

    Small speculative steps wait for the launches of the host, and a draft that computes NaN goes
    on computing it.
    """

    def __init__(self) -> None:
        self._steps_left = 0

    def look(self, hidden_states: torch.Tensor, topk_p: torch.Tensor) -> torch.Tensor | None:
        """Called in every speculative step, once it is launched.

        A sum finds a NaN anywhere in the hidden state that the proposal came from; a NaN in the
        proposal itself, which only trees and prefills relay, is found too. The result is on its
        way to the CPU and must not be read before the step's other results are there: nothing
        waits for it.

        Args:
            hidden_states: [bs, width], that the step's proposals came from.
            topk_p: [bs, topk], their probabilities.

        Returns:
            ``[bs]`` float32, NaN in each row whose draft came out so; None in a step that is not
            looked at.
        """
        if self._steps_left:
            self._steps_left -= 1
            return None
        self._steps_left = NAN_CHECK_STEPS - 1
        sums = hidden_states.sum(dim=-1, dtype=torch.float32)
        return (sums + topk_p[:, 0]).to("cpu", non_blocking=True)
