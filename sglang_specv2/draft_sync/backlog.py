"""Rows whose draft entry is still to be written: what plain steps and prefills left, in order."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch

from sglang_specv2.step_ops import stage

MOST_GROUPS = 32
"""Each is stored by itself, and the host launches all of them at once."""


class PendingRows(NamedTuple):
    """What the draft's entries of some positions are computed from, and where they go."""

    hidden_states: torch.Tensor  # [n, width], the target's, of the position
    slots: torch.Tensor  # [n], integer, KV slot
    positions: torch.Tensor  # [n], integer
    tokens: torch.Tensor  # [n], integer, the token after the position
    requests: torch.Tensor  # [n], integer, request slot


class Backlog:
    """Buffers of ``capacity`` rows on the device; how many are in use is known on the host.

    Rows come in groups. Within one no KV slot comes twice; of two groups that name the same slot,
    since it has changed hands, the later one is right.

    Args:
        capacity: rows; 0 for none at all.
        width: of the target's hidden states that the draft reads.
        dtype: of those states, as the draft reads them.
        device: of the draft.

    Attributes:
        rows: that were added and are still to be written.
    """

    def __init__(
        self, capacity: int, width: int, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        self._hidden_states = torch.empty((capacity, width), dtype=dtype, device=device)
        integers = len(PendingRows._fields) - 1
        self._integers = torch.empty((integers, capacity), dtype=torch.int64, device=device)
        self.clear()
        self._compile()

    def _compile(self) -> None:
        """Copy once, so that no request waits for the compilation; SGLang's samplers give tokens
        of either type."""
        row = torch.zeros(1, dtype=torch.int64, device=self._integers.device)
        for dtype in (torch.int32, torch.int64):
            if self.has_room(1):
                self.add(PendingRows(self._hidden_states[:1], row, row, row.to(dtype), row))
                self.clear()

    def has_room(self, rows: int) -> bool:
        """Whether so many rows fit behind those that are there, of no more groups than
        :data:`MOST_GROUPS`."""
        fits = self.rows + rows <= self._hidden_states.shape[0]
        return fits and len(self._firsts) <= MOST_GROUPS

    def begin_group(self) -> None:
        """What is added from now on may name slots that were named before."""
        if self._firsts[-1] != self.rows:
            self._firsts.append(self.rows)

    def add(self, rows: PendingRows) -> None:
        """Copy rows behind those that are there; on a GPU with a single launch."""
        stage(rows.hidden_states, rows[1:], self._hidden_states, self._integers, self.rows)
        self.rows += rows.slots.shape[0]

    def pending(self) -> PendingRows:
        """All rows, as views that the next :meth:`add` after a :meth:`clear` writes over."""
        return PendingRows(self._hidden_states[: self.rows], *self._integers[:, : self.rows])

    def groups(self) -> list[slice]:
        """Where in the pending rows each group is, in order; none is empty."""
        bounds = pairwise((*self._firsts, self.rows))
        return [slice(first, end) for first, end in bounds if first != end]

    def clear(self) -> None:
        self.rows = 0
        self._firsts = [0]
