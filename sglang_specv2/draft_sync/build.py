"""Builds the draft sync a worker runs with."""

from __future__ import annotations

from typing import Any

from sglang.srt.runtime_context import get_spec
from sglang.srt.speculative.eagle_utils import (
    get_draft_input_from_target_hidden_dim,
    get_draft_recurrent_hidden_state_spec,
)

from sglang_specv2.capture_failures import CaptureFailures
from sglang_specv2.draft_sync.base import DraftSync
from sglang_specv2.draft_sync.choice import SyncChoice, choose
from sglang_specv2.draft_sync.extend import ExtendSync, OneTokenExtend
from sglang_specv2.draft_sync.kv import BACKLOG_ROWS, KVSync
from sglang_specv2.draft_sync.kv_projection import reason_against_loaded
from sglang_specv2.draft_sync.proposals import EmptyProposals
from sglang_specv2.draft_sync.unsynced import Unsynced


def build_draft_sync(
    worker: Any, requested: str, failures: CaptureFailures
) -> tuple[DraftSync, SyncChoice]:
    """Make the sync for a worker whose memory pools and speculative graphs exist.

    Args:
        worker: the EAGLE worker.
        requested: the value of ``--speculative-draft-sync``.
        failures: decides what becomes of a capture that fails.

    Raises:
        ConfigError: ``kv`` was asked for and the draft cannot have it.
    """
    draft_runner = worker.draft_worker.draft_runner
    choice = choose(requested, reason_against_loaded(draft_runner))
    if choice.mode == "extend":
        return ExtendSync(OneTokenExtend(worker, failures)), choice
    slots = worker.req_to_token_pool.req_to_token.shape[0]
    hidden_size, dtype = get_draft_recurrent_hidden_state_spec(draft_runner)
    proposals = EmptyProposals(
        max_rows=slots,
        topk=worker.topk,
        hidden_size=hidden_size,
        dtype=dtype,
        vocab_size=(
            worker.target_worker.model_config.vocab_size
            if get_spec().speculative_use_rejection_sampling
            else None
        ),
        device=worker.device,
    )
    if choice.mode == "off":
        return Unsynced(proposals), choice
    width = get_draft_input_from_target_hidden_dim(draft_runner)
    extend = OneTokenExtend(worker, failures)
    rows = backlog_rows(worker.server_args)
    return KVSync(draft_runner, width, slots, extend, proposals, rows), choice


def backlog_rows(server_args: Any) -> int:
    """How many rows of plain steps and prefills may wait for their entry.

    None where prefixes are copied to the host: that happens as soon as a request ends.
    """
    return 0 if server_args.enable_hierarchical_cache else BACKLOG_ROWS
