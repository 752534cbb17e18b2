"""Several numbers of draft steps, each with graphs of its own, on one worker.

SGLang builds and swaps such a set as one object, for its own adaptation of the number of steps;
here the policy says which one a step runs with. Fewer steps than the server was started with fit
into the KV slots that the scheduler reserves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from sglang.srt.runtime_context import get_context
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState

from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.capture_room import require_room
from sglang_specv2.capture_width import rows_per_request
from sglang_specv2.config import check_step_choices

_SWAP = "adaptive_spec.restore"
"""What SGLang notes a swap under."""


class StepTiers:
    """The numbers of draft steps a worker can speculate with.

    Args:
        worker: the EAGLE worker, with the graphs it was started with.
        choices: numbers of draft steps; 0, the plain step, is not one of speculation's.
        failures: decides what becomes of a capture that fails.

    Raises:
        CaptureError: graphs of a choice could not be captured.
        ConfigError: a choice is above what the server was started with, or drafts are trees.
    """

    def __init__(self, worker: Any, choices: Iterable[int], failures: CaptureFailures) -> None:
        self._configured = configured = worker.speculative_num_steps
        check_step_choices(choices, num_steps=configured, topk=worker.topk)
        wanted = sorted(set(choices) - {0, configured})
        self._worker = worker
        self._states = {configured: _current(worker)}
        for steps in wanted:
            state = failures.attempt(
                f"the graphs of speculation with {steps} draft steps",
                partial(self._build, steps),
                without="policy auto chooses among the others",
            )
            if state is not None:
                self._states[steps] = state
        # It logs a line for each swap, and a policy may swap many times a second.
        if wanted:
            logging.getLogger(worker.apply_runtime_state.__module__).addFilter(_is_no_swap)

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of draft steps that there are graphs for, in order."""
        return tuple(sorted(self._states))

    def _build(self, steps: int) -> SpecRuntimeState:
        require_room(self._worker.target_worker.model_runner)
        with rows_per_request(self._worker.draft_worker.draft_runner, steps + 1):
            return self._worker.build_adaptive_runtime_state(steps, steps + 1)

    @property
    def attn_backends(self) -> tuple[Any, ...]:
        """Of the target and the draft, of every tier."""
        return tuple(
            backend
            for state in self._states.values()
            for backend in (
                state.target_attn_backend,
                state.draft_attn_backend,
                state.draft_extend_attn_backend,
            )
            if backend is not None
        )

    def use(self, steps: int | None) -> None:
        """Speculate with ``steps`` draft steps from now on; None: as the server was started."""
        state = self._states[self._configured if steps is None else steps]
        if state.speculative_num_steps == self._worker.speculative_num_steps:
            return
        self._worker.apply_runtime_state(state)
        _forget_earlier_swaps()


def _forget_earlier_swaps() -> None:
    """SGLang notes each swap for ever; a policy swaps too often for that, and the last one is all
    that the configuration in force depends on."""
    context = get_context()
    swaps = [entry for entry in context._overrides_log if entry[0] == _SWAP]
    context._overrides_log[:] = [
        entry for entry in context._overrides_log if entry[0] != _SWAP
    ] + swaps[-1:]


def _is_no_swap(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Switch adaptive runtime state")


def _current(worker: Any) -> SpecRuntimeState:
    target, draft = worker.target_worker.model_runner, worker.draft_worker
    return SpecRuntimeState(
        speculative_num_steps=worker.speculative_num_steps,
        speculative_num_draft_tokens=worker.speculative_num_draft_tokens,
        draft_attn_backend=draft.draft_attn_backend,
        cuda_graph_runner=draft.cuda_graph_runner,
        target_attn_backend=target.attn_backend,
        target_graph_runner=target.decode_cuda_graph_runner,
        draft_extend_attn_backend=draft.draft_extend_attn_backend,
        cuda_graph_runner_for_draft_extend=draft.cuda_graph_runner_for_draft_extend,
    )
