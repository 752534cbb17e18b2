"""The entry points and the choice of the worker, on stand-ins; see test_plugin_stock."""

import logging
import sys
from argparse import Namespace
from types import ModuleType

import pytest

from sglang_specv2 import compat, cpu, hook, plugin, worker_choice
from sglang_specv2.errors import UnsupportedError


@pytest.fixture
def workers(monkeypatch):
    """SGLang's module with EAGLEWorkerV2 and ours with SpecV2Worker, as stand-ins."""
    upstream = ModuleType("sglang.srt.speculative.eagle_worker_v2")
    upstream.EAGLEWorkerV2 = type("EAGLEWorkerV2", (), {})
    ours = ModuleType("sglang_specv2.worker")
    ours.SpecV2Worker = type("SpecV2Worker", (upstream.EAGLEWorkerV2,), {})
    monkeypatch.setitem(sys.modules, upstream.__name__, upstream)
    monkeypatch.setitem(sys.modules, ours.__name__, ours)
    for option in ("DISABLE_BATCH_THRESHOLD", "DYNAMIC"):
        monkeypatch.delenv(f"SGLANG_SPECV2_{option}", raising=False)
    return Namespace(upstream=upstream.EAGLEWorkerV2, ours=ours.SpecV2Worker)


def choose(upstream, **given):
    return worker_choice.choose(lambda algorithm, args: upstream, "EAGLE", Namespace(**given))


@pytest.mark.parametrize("algorithm", ["EAGLE", "EAGLE3"])
@pytest.mark.parametrize("options", [{}, {"disable_batch_threshold": 8}])
def test_eagle_gets_ours(workers, algorithm, options):
    chosen = choose(workers.upstream, speculative_algorithm=algorithm, specv2_options=options)
    assert chosen is workers.ours


@pytest.mark.parametrize(
    "given",
    [
        {"speculative_algorithm": "NGRAM"},
        {"speculative_algorithm": "EAGLE", "enable_multi_layer_eagle": True},
        {"speculative_algorithm": "EAGLE", "enable_dp_attention": True},
    ],
)
def test_unsupported_keeps_sglang_s_with_one_line(workers, given, caplog):
    other = type("OtherWorker", (), {})
    with caplog.at_level(logging.INFO):
        assert choose(other, **given) is other
    assert len(caplog.records) == 1
    with pytest.raises(UnsupportedError):
        choose(other, **given, specv2_options={"dynamic": "never"})


def test_subclass_of_sglang_s_worker_is_not_replaced(workers):
    special = type("SpecialWorker", (workers.upstream,), {})
    assert choose(special, speculative_algorithm="EAGLE") is special
    with pytest.raises(UnsupportedError, match="SpecialWorker"):
        choose(special, speculative_algorithm="EAGLE", specv2_options={"dynamic": "never"})


def test_worker_replaced_by_another_plugin_in_sglang_s_module_is_ours_to_extend(workers):
    module = sys.modules["sglang.srt.speculative.eagle_worker_v2"]
    module.EAGLEWorkerV2 = type("TheirEagle", (workers.upstream,), {})
    assert choose(module.EAGLEWorkerV2, speculative_algorithm="EAGLE") is workers.ours


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.delenv("SGLANG_SPECV2", raising=False)
    monkeypatch.setattr(compat, "check", lambda: [])
    hook.uninstall()
    yield
    hook.uninstall()
    hook.install()


@pytest.mark.parametrize("entry", [plugin.register, plugin.watch_imports])
def test_entry_points_watch_imports(quiet, entry):
    assert entry() is None
    assert hook.installed()


@pytest.mark.parametrize("entry", [plugin.register, plugin.watch_imports])
def test_switched_off(quiet, entry, monkeypatch):
    monkeypatch.setenv("SGLANG_SPECV2", "0")
    entry()
    assert not hook.installed()
    assert plugin.status() == plugin.Status(enabled=False)
    assert plugin.status().problems == []


def test_register_logs_differences(quiet, monkeypatch, caplog):
    monkeypatch.setattr(compat, "check", lambda: ["SGLang: expected 0.5.17, found 0.5.18"])
    plugin.register()
    assert "expected 0.5.17, found 0.5.18" in caplog.text
    assert plugin.status().problems == ["SGLang: expected 0.5.17, found 0.5.18"]


def test_register_asks_the_cpu_engine(quiet, monkeypatch):
    asked = []
    monkeypatch.setattr(cpu, "maybe_install", lambda: asked.append(True))
    plugin.register()
    assert asked == [True]


def test_status_before_sglang_is_imported(quiet, monkeypatch):
    for patch in hook.PATCHES:
        monkeypatch.delitem(sys.modules, patch.module, raising=False)
    hook.install()
    status = plugin.status()
    assert status.problems == []
    assert len(status.patches) == len(hook.PATCHES)
    assert all(patch.state.startswith("waits for the import of") for patch in status.patches)


def test_status_says_what_is_missing(quiet, monkeypatch):
    for patch in hook.PATCHES:
        monkeypatch.delitem(sys.modules, patch.module, raising=False)
    status = plugin.status()
    assert len(status.problems) == len(hook.PATCHES)
    assert all("missing" in problem for problem in status.problems)


def test_status_says_what_failed(quiet, monkeypatch):
    hook.failures[hook.PATCHES[0]] = "ServerArgs is not defined"
    assert plugin.status().problems[0] == (
        f"{hook.PATCHES[0].purpose}: failed: ServerArgs is not defined"
    )
