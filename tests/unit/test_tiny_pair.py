"""tools/train_tiny_pair.py: text, tokenizer, modules and a short run; and the pair that ships."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests" / "reference")]
import eagle3_reference as reference  # noqa: E402
import train_tiny_pair  # noqa: E402
from tiny_pair import chat, checkpoint, corpus, evaluate, generate, tokenizer, unloop, unroll  # noqa: E402
from tiny_pair.model import Draft, Shape, Target  # noqa: E402

SHIPPED = ROOT / "sglang_specv2" / "models"
SMALL = Shape(hidden_size=64, intermediate_size=96, num_heads=4, max_positions=512)
# What SGLang 0.5.17's LlamaForCausalLMEagle3 reads; the embedding is the target's.
DRAFT_WEIGHTS = {
    "fc.weight",
    "lm_head.weight",
    "norm.weight",
    *(f"midlayer.self_attn.{name}_proj.weight" for name in "qkvo"),
    *(f"midlayer.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    *(f"midlayer.{name}.weight" for name in ("input_layernorm", "hidden_norm")),
    "midlayer.post_attention_layernorm.weight",
}


def random_pair(shape: Shape) -> tuple[Target, Draft]:
    """Both modules with weights that make lively text and, now and then, a right draft."""
    torch.manual_seed(11)
    target, draft = Target(shape), Draft(shape)
    with torch.no_grad():
        for module in (target, draft):
            for weight in module.parameters():
                if weight.dim() == 2:
                    weight.normal_(std=2 * weight.shape[1] ** -0.5)
            module.lm_head.weight[:65] = 0
            module.lm_head.weight[70:] = 0
            checkpoint.round_to_saved(module)
    return target, draft


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Target, Draft]:
    folder = tmp_path_factory.mktemp("saved")
    target, draft = random_pair(SMALL)
    checkpoint.save_target(target, folder / "tiny-target")
    checkpoint.save_draft(draft, folder / "tiny-draft")
    return folder, target, draft


@pytest.fixture(scope="module")
def auto_tokenizer(saved):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(saved[0] / "tiny-target")


class TestTokenizer:
    @settings(max_examples=200, deadline=None)
    @given(text=st.text())
    def test_any_text_survives(self, auto_tokenizer, text: str) -> None:
        ids = auto_tokenizer(text)["input_ids"]
        assert auto_tokenizer.decode(ids) == text
        if not any(special in text for special in tokenizer.SPECIAL_TOKENS):
            assert ids == list(text.encode())

    def test_chat_template_gives_what_was_trained_on(self, auto_tokenizer) -> None:
        turns = [
            ("system", "Be brief."),
            ("user", "¿Qué?"),
            ("assistant", "Nothing."),
            ("user", ""),
        ]
        messages = [{"role": role, "content": content} for role, content in turns]
        text = auto_tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=False
        )
        assert auto_tokenizer(text)["input_ids"] == tokenizer.encode_chat(
            turns, add_generation_prompt=True
        )

    def test_ids_are_all_named(self, auto_tokenizer) -> None:
        assert len(auto_tokenizer) == tokenizer.VOCAB_SIZE == Shape().vocab_size
        assert auto_tokenizer.eos_token_id == tokenizer.END_ID


class TestCorpus:
    def test_rulers_tables_and_blank_lines_go(self) -> None:
        text = "a = 1\n# -------------\n" + "x" * 500 + "\n\n\n\n\n\n\tb = 2   \n"
        assert corpus.clean(text) == "a = 1\n\n\n        b = 2\n"

    def test_split_is_by_name_and_small(self) -> None:
        names = [f"package/module_{i}.py" for i in range(4000)]
        held_out = sum(map(corpus.is_held_out, names))
        assert 0.02 < held_out / len(names) < 0.04

    def test_chats_alternate_and_quote_the_source(self) -> None:
        source = (
            'def add(a, b):\n    """Return the sum of two numbers: a, b."""\n    return a + b\n'
        )
        files = [("m.py", source)] * 30
        conversations = chat.make(files, train_tiny_pair.random.Random(0))
        answers = [text for turns in conversations for role, text in turns if role == "assistant"]
        assert source.strip() in answers
        for turns in conversations:
            roles = [role for role, _ in turns if role != "system"]
            assert roles == ["user", "assistant"] * (len(roles) // 2)

    def test_too_little_text_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "one.py").write_text("x = 1\n" * 100)
        with pytest.raises(FileNotFoundError, match="at least 20 Python sources"):
            corpus.build(tmp_path, seed=0)


class TestModules:
    def test_target_equals_transformers(self, saved) -> None:
        transformers = pytest.importorskip("transformers")
        folder, target, _ = saved
        theirs = transformers.AutoModelForCausalLM.from_pretrained(
            folder / "tiny-target", dtype=torch.float32
        )
        ids = torch.randint(
            0, SMALL.vocab_size, (2, 80), generator=torch.Generator().manual_seed(0)
        )
        with torch.no_grad():
            expected = theirs(ids, output_hidden_states=True)
            normed, aux = target(ids)
        torch.testing.assert_close(target.lm_head(normed), expected.logits, rtol=1e-4, atol=1e-4)
        captured = torch.cat([expected.hidden_states[i + 1] for i in SMALL.aux_layers], -1)
        torch.testing.assert_close(aux, captured, rtol=1e-4, atol=1e-4)

    def test_draft_has_the_weights_that_sglang_reads(self, saved) -> None:
        with safe_open(saved[0] / "tiny-draft" / "model.safetensors", "pt") as weights:
            assert set(weights.keys()) == DRAFT_WEIGHTS

    def test_cached_generation_equals_the_reference(self, saved) -> None:
        folder, target, _ = saved
        pair = reference.Pair.load(folder / "tiny-target", folder / "tiny-draft")
        prompt = list(b"def f(x):\n")
        ids = generate.generate(target, torch.tensor([prompt, prompt]), 60)
        expected = reference.generate(pair, prompt, 60, speculate=lambda step: False)
        assert ids[0].tolist() == ids[1].tolist() == prompt + expected.tokens

    @pytest.mark.parametrize("drafts", [1, 2, 3])
    def test_unrolled_training_sees_what_drafting_sees(self, saved, drafts: int) -> None:
        folder, target, draft = saved
        pair = reference.Pair.load(folder / "tiny-target", folder / "tiny-draft")
        prompt = list(b"class A:\n")
        run = reference.generate(pair, prompt, 160, drafts=drafts)
        ids = torch.tensor([prompt + run.tokens])
        (unrolled,) = evaluate.accept_lengths(target, draft, ids, len(prompt), drafts=drafts)
        assert len(unrolled) > 30
        assert max(unrolled) > 1
        assert unrolled == run.accept_lengths[: len(unrolled)]

    def test_queries_can_be_the_last_rows_only(self, saved) -> None:
        _, target, draft = saved
        ids = torch.randint(0, 256, (1, 67), generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            _, aux = target(ids)
            args = (draft, target.model.embed_tokens, ids, aux[:, :64])
            full = unroll.draft_hidden(*args, queries=64, steps=3)
            tail = unroll.draft_hidden(*args, queries=16, steps=3)
        for whole, part in zip(full, tail, strict=True):
            torch.testing.assert_close(whole[:, -16:], part)

    def test_wrong_length_is_an_error(self, saved) -> None:
        _, target, draft = saved
        with pytest.raises(ValueError, match="expected ids of length 12, got 11"):
            unroll.draft_hidden(
                draft,
                target.model.embed_tokens,
                torch.zeros(1, 11, dtype=torch.int64),
                torch.zeros(1, 10, 192),
                queries=10,
                steps=2,
            )

    def test_another_shape_is_refused(self, saved) -> None:
        with pytest.raises(ValueError, match="hidden_size"):
            checkpoint.load_target(
                saved[0] / "tiny-target", replace(SMALL, hidden_size=128), torch.device("cpu")
            )


class TestLoops:
    @pytest.mark.parametrize("period", [1, 2, 7])
    def test_period_is_found(self, period: int) -> None:
        assert evaluate.loop_period([9, 8, 9, 9] + list(range(period)) * 300) == period

    def test_lively_text_has_none(self) -> None:
        assert evaluate.loop_period(list(range(256))) == 0
        assert not unloop.looping(torch.arange(256)[None]).any()

    @pytest.mark.parametrize("period", [1, 30, 60])
    def test_going_round_again_is_marked_and_the_first_rounds_are_not(self, period: int) -> None:
        loop = [i % period for i in range(400)]
        marked = unloop.looping(torch.tensor([[*range(100, 150), *loop, 250]]))[0]
        first = 50 + period + max(period, unloop.SHORTEST_RUN)
        assert marked.nonzero()[:, 0].tolist() == list(range(first, 450))

    def test_penalty_pushes_the_marked_token_down(self) -> None:
        ids = torch.tensor([[0, 1, 2]])
        logits = torch.zeros(1, 2, 4, requires_grad=True)
        unloop.unlikelihood(logits, ids, torch.tensor([[False, False, True]])).backward()
        assert logits.grad is not None
        assert (logits.grad[0, 0] == 0).all()
        assert logits.grad[0, 1, 2] > 0
        assert (logits.grad[0, 1, [0, 1, 3]] < 0).all()


def test_a_short_run_leaves_a_pair_that_drafts(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setitem(
        train_tiny_pair.TRIAL, "measure", {"code_rows": 2, "long_rows": 1, "long_tokens": 64}
    )
    text, out = tmp_path / "text", tmp_path / "out"
    text.mkdir()
    for i in range(120):
        body = "".join(f"def name_{i}_{j}(value):\n    return value + {j}\n\n\n" for j in range(20))
        (text / f"m{i}.py").write_text(body)
    arguments = ["--out", str(out), "--trial", "--steps", "12", "4", "12", "--text", str(text)]
    assert train_tiny_pair.main([*arguments, "--device", "cpu"]) == 0
    assert "accept length, code" in capsys.readouterr().out
    pair = reference.Pair.load(out / "tiny-target", out / "tiny-draft")
    run = reference.generate(pair, list(b"def "), 12)
    assert len(run.tokens) == 12
    log = [json.loads(line) for line in (out / "training_log.jsonl").open()]
    assert [r["loss"] for r in log if r.get("model") == "target"]
    for name in ("tiny-target", "tiny-draft"):
        assert "| seed | 1 |" in (out / name / "README.md").read_text()


@pytest.fixture(scope="module")
def shipped() -> reference.Pair:
    return reference.Pair.load(SHIPPED / "tiny-target", SHIPPED / "tiny-draft")


PROMPTS = (
    b"import os\nimport sys\n\n\ndef main(argv):\n",
    b"class Reader:\n    def __init__(self, path):\n        self.path = path\n\n    def read(",
    b'"""Read and write configuration files.\n\nThis module ',
)


@pytest.fixture(scope="module")
def runs(shipped) -> list[reference.Run]:
    return [reference.generate(shipped, list(prompt), 120) for prompt in PROMPTS]


class TestShippedPair:
    def test_it_is_small(self) -> None:
        total = sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file())
        assert total <= 10_000_000

    def test_configs_are_what_the_tool_writes(self) -> None:
        for name, expected in (
            ("tiny-target", checkpoint.target_config(Shape())),
            ("tiny-draft", checkpoint.draft_config(Shape())),
        ):
            assert json.loads((SHIPPED / name / "config.json").read_text()) == expected
        assert len(set(Shape().aux_layers)) == 3
        assert max(Shape().aux_layers) < Shape().num_layers - 1

    def test_cards_and_logs_are_there(self) -> None:
        for name in ("tiny-target", "tiny-draft"):
            assert "PSF licence" in (SHIPPED / name / "README.md").read_text()
            log = [json.loads(line) for line in (SHIPPED / name / "training_log.jsonl").open()]
            assert log[-1]["step"] > log[0]["step"]

    def test_it_accepts_drafts(self, runs) -> None:
        steps = [length for run in runs for length in run.accept_lengths]
        assert sum(steps) / len(steps) >= 2.0

    def test_a_wrong_draft_position_shows(self, shipped, runs) -> None:
        for error in (-1, 1):
            wrong = [
                reference.generate(shipped, list(prompt), 120, chain_position_error=error)
                for prompt in PROMPTS
            ]
            assert [run.tokens for run in wrong] == [run.tokens for run in runs]
            assert [run.accept_lengths for run in wrong] != [run.accept_lengths for run in runs]

    def test_it_does_not_fall_into_a_short_loop(self, runs) -> None:
        for run in runs:
            assert evaluate.loop_period(run.tokens, longest=2, window=48) == 0
