from types import SimpleNamespace

import pytest
import torch

from sglang_specv2.draft_sync.proposals import (
    NAN_CHECK_STEPS,
    EmptyProposals,
    NanCheck,
    pending_rows,
)

HIDDEN, VOCAB = 6, 11


def proposals(topk=1, vocab_size=None):
    return EmptyProposals(
        max_rows=5,
        topk=topk,
        hidden_size=HIDDEN,
        dtype=torch.float16,
        vocab_size=vocab_size,
        device="cpu",
    )


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("topk", [1, 3])
def test_shapes_and_types_are_those_that_sglang_relays(rows, topk):
    draft_input = SimpleNamespace()
    proposals(topk).fill(draft_input, rows)

    assert draft_input.topk_p.shape == draft_input.topk_index.shape == (rows, topk)
    assert (draft_input.topk_p.dtype, draft_input.topk_index.dtype) == (torch.float32, torch.int64)
    assert draft_input.hidden_states.shape == (rows, HIDDEN)
    assert draft_input.hidden_states.dtype == torch.float16
    assert not hasattr(draft_input, "draft_probs")


def test_with_rejection_sampling_a_distribution_is_relayed_too():
    draft_input = SimpleNamespace()
    proposals(vocab_size=VOCAB).fill(draft_input, 4)

    assert draft_input.draft_probs.shape == (4, VOCAB)


def test_a_row_is_pending_where_its_first_probability_is_zero():
    draft_input = SimpleNamespace()
    proposals().fill(draft_input, 3)
    assert pending_rows(draft_input).tolist() == [True] * 3

    draft_input.topk_p = torch.tensor([[0.0], [1e-30], [1.0]])
    assert pending_rows(draft_input).tolist() == [True, False, False]


def test_a_filtered_and_merged_batch_keeps_which_rows_are_pending():
    """As SGLang's EagleDraftInput does without the overlap loop: index, then concatenate."""
    pending, fresh = SimpleNamespace(), SimpleNamespace(topk_p=torch.tensor([[0.4], [0.9]]))
    proposals().fill(pending, 4)
    merged = SimpleNamespace(topk_p=torch.cat([pending.topk_p[[0, 2]], fresh.topk_p]))

    assert pending_rows(merged).tolist() == [True, True, False, False]


@pytest.mark.parametrize("field", ["hidden_states", "topk_p"])
def test_one_step_in_so_many_is_looked_at_for_nan(field):
    proposal = {
        "hidden_states": torch.ones((3, 4), dtype=torch.bfloat16),
        "topk_p": torch.ones((3, 1)),
    }
    proposal[field][1, 0] = torch.nan
    check = NanCheck()

    found = [check.look(**proposal) for _ in range(2 * NAN_CHECK_STEPS + 1)]

    looked_at = [step for step, rows in enumerate(found) if rows is not None]
    assert looked_at == [0, NAN_CHECK_STEPS, 2 * NAN_CHECK_STEPS]
    assert all(found[step].isnan().tolist() == [False, True, False] for step in looked_at)
