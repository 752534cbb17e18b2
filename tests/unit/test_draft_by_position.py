"""The draft of a whole text at once against the step-by-step reference, on random weights."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
from draft_by_position import draft_of
from eagle3_reference import Pair, generate

VOCAB, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS = 6, 32, 4, 2, 8, 48, 4
PROMPT, NEW_TOKENS = [3, 1, 4, 1, 2, 0], 90


@pytest.fixture(scope="module")
def pair() -> Pair:
    generator = torch.Generator().manual_seed(3)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 2 * columns**-0.5

    def norm() -> torch.Tensor:
        return 1 + 0.2 * torch.randn(HIDDEN, generator=generator)

    def block(prefix: str, input_size: int) -> dict[str, torch.Tensor]:
        return {
            f"{prefix}self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, input_size),
            f"{prefix}self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, input_size),
            f"{prefix}self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, input_size),
            f"{prefix}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{prefix}mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{prefix}mlp.down_proj.weight": matrix(HIDDEN, INNER),
            f"{prefix}input_layernorm.weight": norm(),
            f"{prefix}post_attention_layernorm.weight": norm(),
        }

    target = {
        "model.embed_tokens.weight": matrix(VOCAB, HIDDEN),
        "model.norm.weight": norm(),
        "lm_head.weight": matrix(VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        target |= block(f"model.layers.{layer}.", HIDDEN)
    draft = {
        "fc.weight": matrix(HIDDEN, 3 * HIDDEN),
        "norm.weight": norm(),
        "lm_head.weight": matrix(VOCAB, HIDDEN),
        "midlayer.hidden_norm.weight": norm(),
        **block("midlayer.", 2 * HIDDEN),
    }
    return Pair(target, draft, HEADS, KV_HEADS, HEAD_DIM, LAYERS, (0, 1, 2), 10000.0, 1e-5)


@pytest.mark.parametrize("drafts", [1, 2, 3])
@pytest.mark.parametrize("off", [0, 1, 5])
def test_every_step_is_predicted_from_its_position(pair: Pair, drafts: int, off: int) -> None:
    """``off`` steps that do not speculate come between any two that do."""
    run = generate(pair, PROMPT, NEW_TOKENS, drafts=drafts, speculate=lambda n: n % (off + 1) == 0)
    predicted = draft_of(pair, PROMPT + run.tokens, drafts).accepted

    position, compared = len(PROMPT), 0
    for accepted in run.accept_lengths:
        if position < len(predicted) and predicted[position] is not None:
            assert accepted == predicted[position]
            compared += 1
        position += accepted + off
    assert compared > 0.8 * len(run.accept_lengths)
    assert len(set(run.accept_lengths)) > 1


def test_nothing_is_told_where_the_text_ends(pair: Pair) -> None:
    tokens = PROMPT + generate(pair, PROMPT, NEW_TOKENS).tokens
    accepted = draft_of(pair, tokens, 2).accepted

    assert len(accepted) == len(tokens)
    assert accepted[0] is None
    assert accepted[-1] is None
    assert accepted[-2] in (1, None), "only a first draft that misses ends the run in time"


def test_a_near_tie_is_left_open(pair: Pair) -> None:
    tokens = PROMPT + generate(pair, PROMPT, NEW_TOKENS).tokens

    assert set(draft_of(pair, tokens, 2, margin=1e9).accepted) == {None}
