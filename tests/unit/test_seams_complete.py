"""Holds the ledger against our own source: what we touch in SGLang is in it, and nothing else is.

Names are found by reading: imports, their attributes, dotted paths in strings, attributes of what
goes by the same name all over the package (:data:`OBJECTS`), keywords of constructors, and what our
subclasses share with their bases.
"""

import ast
import importlib.util
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import sglang_specv2
from sglang_specv2.cpu.seams import CPU_LEDGER
from sglang_specv2.seams import LEDGER, RELIED_ON
from sglang_specv2.sglang_source import Source

SGLANG = Source(Path(importlib.util.find_spec("sglang").submodule_search_locations[0]))
PACKAGE = Path(sglang_specv2.__file__).parent
LEDGERS = (PACKAGE / "seams", PACKAGE / "cpu" / "seams.py")
CPU_ENGINE = PACKAGE / "cpu"

OBJECTS = {
    "DraftBackendFactory": "sglang.srt.speculative.draft_utils.DraftBackendFactory",
    "ServerArgs": "sglang.srt.server_args.ServerArgs",
    "XGrammarGrammar": "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar",
    "allocator": "sglang.kernels.ops.memory.allocator",
    "attention_registry": "sglang.srt.layers.attention.attention_registry",
    "batch_invariant_ops": "sglang.srt.batch_invariant_ops",
    "draft_utils": "sglang.srt.speculative.draft_utils",
    "eagle_utils": "sglang.srt.speculative.eagle_utils",
    "gather_spec_extras": "sglang.kernels.ops.speculative.gather_spec_extras",
    "murmur_hash": "sglang.kernels.ops.sampling.murmur_hash",
    "speculative_hook": "sglang.srt.arg_groups.speculative_hook",
    "xgrammar_backend": "sglang.srt.constrained.xgrammar_backend",
    "_draft_worker": "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker",
    "_graph_runner": "sglang.srt.model_executor.runner.DecodeCudaGraphRunner",
    "_layer": "sglang.srt.models.llama_eagle3.LlamaDecoderLayer",
    "_model": "sglang.srt.models.llama_eagle3.LlamaModel",
    "_target": "sglang.srt.model_executor.model_runner.ModelRunner",
    "attention": "sglang.srt.models.llama.LlamaAttention",
    "batch": "sglang.srt.managers.schedule_batch.ScheduleBatch",
    "decode_cuda_graph_runner": "sglang.srt.model_executor.runner.DecodeCudaGraphRunner",
    "draft": "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker",
    "draft_input": "sglang.srt.speculative.eagle_info.EagleDraftInput",
    "draft_runner": "sglang.srt.model_executor.model_runner.ModelRunner",
    "draft_worker": "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker",
    "envs": "sglang.srt.environ.Envs",
    "factory": "sglang.srt.speculative.draft_utils.DraftBackendFactory",
    "forward_batch": "sglang.srt.model_executor.forward_batch_info.ForwardBatch",
    "forward_mode": "sglang.srt.model_executor.forward_batch_info.ForwardMode",
    "future_map": "sglang.srt.managers.overlap_utils.FutureMap",
    "logits": "sglang.srt.layers.logits_processor.LogitsProcessorOutput",
    "model_config": "sglang.srt.configs.model_config.ModelConfig",
    "model_runner": "sglang.srt.model_executor.model_runner.ModelRunner",
    "ps": "sglang.srt.distributed.parallel_state_wrapper.ParallelState",
    "processor": "sglang.srt.managers.scheduler_components.batch_result_processor"
    ".SchedulerBatchResultProcessor",
    "reporter": "sglang.srt.managers.scheduler_components.metrics_reporter"
    ".SchedulerMetricsReporter",
    "req": "sglang.srt.managers.schedule_batch.Req",
    "req_to_token_pool": "sglang.srt.mem_cache.memory_pool.ReqToTokenPool",
    "runner": "sglang.srt.model_executor.model_runner.ModelRunner",
    "sampling_info": "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo",
    "scheduler": "sglang.srt.managers.scheduler.Scheduler",
    "target_worker": "sglang.srt.managers.tp_worker.TpModelWorker",
    "token_to_kv_pool": "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool",
}
"""Name in our code → the class or module of SGLang it stands for wherever it occurs."""


def sources(of_cpu_engine: bool) -> dict[str, ast.Module]:
    """The package's modules, or the CPU engine's, by path; not the ledgers themselves."""
    return {
        str(file.relative_to(PACKAGE)): ast.parse(file.read_text(encoding="utf-8"))
        for file in PACKAGE.rglob("*.py")
        if file.is_relative_to(CPU_ENGINE) == of_cpu_engine
        and not any(file.is_relative_to(ledger) for ledger in LEDGERS)
    }


def touched(tree: ast.Module) -> Iterator[str]:
    """Dotted paths in SGLang of what a module touches."""
    imported = dict(_imports(tree))
    yield from imported.values()
    objects = imported | OBJECTS
    bases = {
        cls: objects[ast.unparse(base)]
        for cls in ast.walk(tree)
        if isinstance(cls, ast.ClassDef)
        for base in cls.bases
        if ast.unparse(base) in imported
    }
    constructed = imported | {cls.name: base for cls, base in bases.items()}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"sglang(\.\w+)+", node.value):
                yield node.value
        elif isinstance(node, ast.Attribute) and not node.attr.startswith("__"):
            holder = getattr(node.value, "attr", getattr(node.value, "id", None))
            if holder in objects:
                yield f"{objects[holder]}.{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in constructed:
            base = constructed[ast.unparse(node.func)]
            yield from _existing(base, [keyword.arg for keyword in node.keywords])
    for cls, base in bases.items():
        yield from _existing(base, _names_of_self(cls))


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [(alias.name, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(alias.name, f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        yield from ((name, path) for name, path in found if path.startswith("sglang."))


def _existing(owner: str, names: Iterable[str]) -> Iterator[str]:
    """Those of the names that a class of SGLang has, by intent or by a clash."""
    return (path for name in names if SGLANG.find(path := f"{owner}.{name}") is not None)


def _names_of_self(cls: ast.ClassDef) -> Iterator[str]:
    for statement in cls.body:
        if isinstance(statement, ast.Assign):
            yield from (ast.unparse(target) for target in statement.targets)
    for node in ast.walk(cls):
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("self", "super()"):
            yield node.attr


def words(tree: ast.Module) -> Iterator[str]:
    """Every identifier of a module, those in strings that are nothing but names included."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module", "value"):
            text = getattr(node, field, None)
            if isinstance(text, str) and re.fullmatch(r"[\w.]+", text):
                yield from text.split(".")


@pytest.mark.parametrize(
    ("of_cpu_engine", "names"),
    [(False, LEDGER), (True, (*LEDGER, *CPU_LEDGER))],
    ids=["package", "CPU engine"],
)
def test_everything_we_touch_is_in_the_ledger(of_cpu_engine, names):
    paths = [entry.path for entry in names]
    known = {".".join(path.split(".")[:n]) for path in paths for n in range(1, path.count(".") + 2)}
    forgotten = {
        f"{file}: {path}"
        for file, tree in sources(of_cpu_engine).items()
        for path in touched(tree)
        if path not in known
    }
    assert sorted(forgotten) == []


@pytest.mark.parametrize(
    ("of_cpu_engine", "names"), [(False, LEDGER), (True, CPU_LEDGER)], ids=["package", "CPU engine"]
)
def test_everything_in_the_ledger_is_touched(of_cpu_engine, names):
    used = {word for tree in sources(of_cpu_engine).values() for word in words(tree)}
    unused = [
        entry.path
        for entry in names
        if entry.why != RELIED_ON and entry.path.rpartition(".")[2] not in used
    ]
    assert unused == []


SCHEDULE_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
RESULT = "sglang.srt.managers.utils.GenerationBatchResult"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sglang.srt.server_args", {"sglang.srt.server_args"}),
        ("def f():\n from sglang.srt.x import a as b, c", {"sglang.srt.x.a", "sglang.srt.x.c"}),
        ("from sglang_specv2 import config\nimport sglangs, torch", set()),
        ("A = {'sglang.srt.x' '.Y.z': 1}", {"sglang.srt.x.Y.z"}),
        ("'''Of sglang.srt.x, in words.'''", set()),
        ("self.batch.reqs.append(1)", {f"{SCHEDULE_BATCH}.reqs"}),
        ("batch.x = 1", {f"{SCHEDULE_BATCH}.x"}),
        ("from sglang.x import Y\nY.z; y.z", {"sglang.x.Y", "sglang.x.Y.z"}),
        ("other.reqs, batch['reqs'], batch.__class__", set()),
        (
            "from sglang.srt.managers.utils import GenerationBatchResult\n"
            "class Ours(GenerationBatchResult):\n"
            " next_draft_input = None\n"
            " def copy_to_cpu(self): return super().accept_lens, self.next_token_ids, self.ours\n"
            "class Other:\n"
            " def x(self): return self.new_seq_lens\n"
            "Ours(logits_output=None, ours=None); Other(can_run_cuda_graph=True)",
            {
                RESULT,
                f"{RESULT}.accept_lens",
                f"{RESULT}.copy_to_cpu",
                f"{RESULT}.logits_output",
                f"{RESULT}.next_draft_input",
                f"{RESULT}.next_token_ids",
            },
        ),
    ],
)
def test_what_counts_as_touched(code, expected):
    assert set(touched(ast.parse(code))) == expected


def test_what_counts_as_a_word():
    code = '"""Says docstring."""\nfrom a.b import c as d\ne.f(g=h, i="j.k")\ndef l(m): "n o"'
    assert set(words(ast.parse(code))) == set("abcefghijklm")
