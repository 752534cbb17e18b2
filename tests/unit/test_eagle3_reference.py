"""The cache-free EAGLE-3 reference, on random weights; the vocabulary is tiny, so drafts hit."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
import eagle3_reference as reference

VOCAB, HIDDEN, HEADS, KV_HEADS, INNER, LAYERS = 5, 32, 4, 2, 48, 4
PROMPT = [3, 1, 4, 1, 2, 0, 2]
NEW_TOKENS = 96


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("pair")
    generator = torch.Generator().manual_seed(5)

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * 2 * columns**-0.5

    def norm(size: int) -> torch.Tensor:
        return 1 + 0.2 * torch.randn(size, generator=generator)

    def block(prefix: str, input_size: int) -> dict[str, torch.Tensor]:
        kv_size = KV_HEADS * HIDDEN // HEADS
        return {
            f"{prefix}self_attn.q_proj.weight": matrix(HIDDEN, input_size),
            f"{prefix}self_attn.k_proj.weight": matrix(kv_size, input_size),
            f"{prefix}self_attn.v_proj.weight": matrix(kv_size, input_size),
            f"{prefix}self_attn.o_proj.weight": matrix(HIDDEN, HIDDEN),
            f"{prefix}mlp.gate_proj.weight": matrix(INNER, HIDDEN),
            f"{prefix}mlp.up_proj.weight": matrix(INNER, HIDDEN),
            f"{prefix}mlp.down_proj.weight": matrix(HIDDEN, INNER),
            f"{prefix}input_layernorm.weight": norm(HIDDEN),
            f"{prefix}post_attention_layernorm.weight": norm(HIDDEN),
        }

    target = {
        "model.embed_tokens.weight": matrix(VOCAB, HIDDEN),
        "model.norm.weight": norm(HIDDEN),
        "lm_head.weight": matrix(VOCAB, HIDDEN),
    }
    for i in range(LAYERS):
        target |= block(f"model.layers.{i}.", HIDDEN)
    draft = {
        "fc.weight": matrix(HIDDEN, 3 * HIDDEN),
        "norm.weight": norm(HIDDEN),
        "lm_head.weight": matrix(VOCAB, HIDDEN),
        "midlayer.hidden_norm.weight": norm(HIDDEN),
        **block("midlayer.", 2 * HIDDEN),
    }
    sizes = {
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "num_hidden_layers": LAYERS,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "architectures": ["LlamaForCausalLM"],
        "bos_token_id": None,
        "eos_token_id": None,
    }
    layers = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}}
    for name, weights, config in (("target", target, sizes), ("draft", draft, sizes | layers)):
        (root / name).mkdir()
        save_file(weights, root / name / "model.safetensors", metadata={"format": "pt"})
        (root / name / "config.json").write_text(json.dumps(config))
    return root / "target", root / "draft"


@pytest.fixture(scope="module")
def pair(folders: tuple[Path, Path]) -> reference.Pair:
    return reference.Pair.load(*folders)


@pytest.fixture(scope="module")
def always(pair: reference.Pair) -> reference.Run:
    return reference.generate(pair, PROMPT, NEW_TOKENS)


def plain_greedy(pair: reference.Pair, new_tokens: int) -> list[int]:
    return reference.generate(pair, PROMPT, new_tokens, speculate=lambda step: False).tokens


def positions(run: reference.Run, modes: Iterator[bool]) -> dict[int, int]:
    """Number of known new tokens before each speculative step -> its accept length."""
    found, known, accepted = {}, 1, iter(run.accept_lengths)
    while len(found) < len(run.accept_lengths):
        if next(modes):
            found[known] = next(accepted)
            known += found[known]
        else:
            known += 1
    return found


def test_target_equals_transformers(folders, pair) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.LlamaForCausalLM.from_pretrained(folders[0], dtype=torch.float32)
    with torch.no_grad():
        expected = model(torch.tensor([PROMPT]), output_hidden_states=True)
    logits, aux = reference.run_target(pair, PROMPT)
    torch.testing.assert_close(logits, expected.logits[0], rtol=1e-4, atol=1e-4)
    captured = torch.cat([expected.hidden_states[i + 1][0] for i in pair.aux_layers], -1)
    torch.testing.assert_close(aux, captured, rtol=1e-4, atol=1e-4)


def test_tokens_equal_plain_greedy(pair, always) -> None:
    assert always.tokens == plain_greedy(pair, NEW_TOKENS)
    assert len(set(always.tokens)) > 2


def test_accept_lengths_add_up(always) -> None:
    assert set(always.accept_lengths) == {1, 2, 3}
    surplus = 1 + sum(always.accept_lengths) - NEW_TOKENS
    assert 0 <= surplus < always.accept_lengths[-1]
    assert sum(always.histogram(drafts=2)) == len(always.accept_lengths)


@pytest.mark.parametrize("error", [-1, 1])
def test_a_wrong_draft_position_changes_accept_lengths_and_no_token(pair, always, error) -> None:
    wrong = reference.generate(pair, PROMPT, NEW_TOKENS, chain_position_error=error)
    assert wrong.tokens == always.tokens
    assert wrong.accept_lengths != always.accept_lengths


@pytest.mark.parametrize("drafts", [1, 3, 5])
def test_other_chain_lengths(pair, always, drafts) -> None:
    run = reference.generate(pair, PROMPT, NEW_TOKENS, drafts=drafts)
    assert run.tokens == always.tokens
    assert 1 <= min(run.accept_lengths) <= max(run.accept_lengths) <= drafts + 1


def test_plain_steps_leave_acceptance_as_if_never_off(pair, always) -> None:
    def modes() -> Iterator[bool]:
        return iter([step % 5 < 2 for step in range(NEW_TOKENS)])

    schedule = list(modes())
    mixed = reference.generate(pair, PROMPT, NEW_TOKENS, speculate=schedule.__getitem__)
    assert mixed.tokens == always.tokens
    seen = positions(mixed, modes())
    never_off = positions(always, iter([True] * NEW_TOKENS))
    shared = seen.keys() & never_off.keys()
    assert len(shared) > 5
    assert {at: seen[at] for at in shared} == {at: never_off[at] for at in shared}


def test_stop_token_ends_the_run_inside_an_accepted_step(pair, always) -> None:
    stop = next(t for t in always.tokens[1:] if t != always.tokens[0])
    run = reference.generate(pair, PROMPT, NEW_TOKENS, stop_ids=[stop])
    assert run.tokens == always.tokens[: always.tokens.index(stop) + 1]
