import sys
from http.server import HTTPServer, SimpleHTTPRequestHandler
from threading import Thread
from types import ModuleType

import pytest

from sglang_specv2 import compat, cpu, gpus
from sglang_specv2.cli import main, serve
from sglang_specv2.errors import CompatibilityError, ConfigError, UnsupportedError


@pytest.fixture
def pair(monkeypatch, tmp_path):
    monkeypatch.setattr(cpu, "bundled_pair", lambda: (tmp_path / "target", tmp_path / "draft"))
    return [
        *("--model-path", str(tmp_path / "target")),
        *("--speculative-draft-model-path", str(tmp_path / "draft")),
        *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2"),
        *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
    ]


@pytest.fixture(params=[True, False], ids=["with a GPU", "without a GPU"])
def has_gpu(request, monkeypatch):
    def find():
        if request.param:
            return [gpus.Gpu("NVIDIA H200", 1, 1, "580")]
        raise gpus.NoGpuError("none")

    monkeypatch.setattr(gpus, "find", find)
    return request.param


@pytest.mark.parametrize(
    "argv",
    [
        ["--model-path", "m", "--port", "1"],
        ["--model=m"],
        ["meta-llama/x", "--port", "1"],
        ["--config", "c.yaml"],
        ["m", "--device", "cuda"],
        ["--help"],
    ],
)
def test_a_model_on_the_gpu_passes_unchanged(has_gpu, argv):
    assert serve.plan(argv, cpu_asked=False) == (argv, False)


def test_cpu_asked(has_gpu):
    assert serve.plan(["m"], cpu_asked=True) == (["m", "--device", "cpu"], True)
    assert serve.plan(["m", "--device=cpu"], cpu_asked=True) == (["m", "--device=cpu"], True)


def test_device_cpu_needs_the_engine_too(has_gpu):
    assert serve.plan(["m", "--device", "cpu"], cpu_asked=False)[1]


def test_cpu_and_another_device(has_gpu):
    with pytest.raises(ConfigError, match="--cpu and --device cuda"):
        serve.plan(["m", "--device", "cuda"], cpu_asked=True)


def test_cpu_without_a_model_serves_the_pair(has_gpu, pair):
    argv = ["--port", "1"]
    assert serve.plan(argv, cpu_asked=True) == ([*pair, *argv, "--device", "cpu"], True)


def test_nothing_at_all(has_gpu, pair):
    if has_gpu:
        assert serve.plan([], cpu_asked=False) == ([], False)
    else:
        assert serve.plan([], cpu_asked=False) == ([*pair, "--device", "cpu"], True)


def test_given_flags_come_after_the_pair_s_and_win(has_gpu, pair):
    argv, _ = serve.plan(["--speculative-num-steps", "1"], cpu_asked=True)
    assert argv[len(pair) :] == ["--speculative-num-steps", "1", "--device", "cpu"]


def test_a_draft_that_nothing_would_use_is_refused(has_gpu):
    argv = ["m", "--speculative-draft-model-path", "d"]
    with pytest.raises(ConfigError, match="d: expected --speculative-algorithm EAGLE3"):
        serve.plan(argv, cpu_asked=True)
    for more in (["--speculative-algorithm=EAGLE3"], ["--config", "server.yaml"]):
        assert serve.plan([*argv, *more], cpu_asked=False) == ([*argv, *more], False)


@pytest.fixture
def sglang(monkeypatch):
    """SGLang's serve as a stand-in that keeps what it is called with."""
    calls = []
    module = ModuleType("sglang.cli.serve")
    module.serve = lambda args, argv: calls.append(argv)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(serve, "_require_patches", lambda: None)
    monkeypatch.setattr(compat, "check", lambda: [])
    monkeypatch.delenv("SGLANG_SPECV2", raising=False)
    monkeypatch.setattr(cpu, "install", lambda: calls.append("cpu"))
    module.calls = calls
    return module


def test_serve_ends_in_sglang_s(sglang, has_gpu):
    argv = ["m", "--speculative-disable-batch-threshold", "8", "--port=1"]
    assert main.main(["serve", *argv]) == 0
    assert sglang.calls == [argv]


def test_serve_cpu_installs_the_engine_first(sglang, has_gpu):
    assert main.main(["serve", "m", "--cpu"]) == 0
    assert sglang.calls == ["cpu", ["m", "--device", "cpu"]]


def test_serve_help_is_ours_and_sglang_s(sglang, has_gpu, capsys):
    assert main.main(["serve", "--help"]) == 0
    assert "--cpu" in capsys.readouterr().out
    assert sglang.calls == [["--help"]]


def test_serve_refuses_another_sglang(sglang, monkeypatch, capsys):
    monkeypatch.setattr(compat, "check", lambda: ["SGLang: expected 0.5.17, found 0.5.18"])
    assert main.main(["serve", "m"]) == 2
    assert "SGLang: expected 0.5.17, found 0.5.18" in capsys.readouterr().err
    assert sglang.calls == []


def test_serve_refuses_failed_patches(sglang, monkeypatch, capsys):
    def failed():
        raise CompatibilityError("flags and keywords: missing")

    monkeypatch.setattr(serve, "_require_patches", failed)
    assert main.main(["serve", "m"]) == 2
    assert "flags and keywords: missing" in capsys.readouterr().err
    assert sglang.calls == []


def test_serve_refuses_to_be_switched_off(sglang, monkeypatch, capsys):
    monkeypatch.setenv("SGLANG_SPECV2", "0")
    assert main.main(["serve", "m"]) == 2
    assert "SGLANG_SPECV2=0" in capsys.readouterr().err
    assert sglang.calls == []


def test_refusals_inside_sglang_are_said_without_a_traceback(sglang, has_gpu, capsys):
    def serve_(args, argv):
        raise UnsupportedError("--pipeline-parallel-size 2: …")

    sglang.serve = serve_
    assert main.main(["serve", "m"]) == 2
    assert capsys.readouterr().err == "sglang-specv2: --pipeline-parallel-size 2: …\n"


def test_other_faults_keep_their_traceback(sglang, has_gpu):
    def serve_(args, argv):
        raise RuntimeError("CUDA error")

    sglang.serve = serve_
    with pytest.raises(RuntimeError, match="CUDA error"):
        main.main(["serve", "m"])


def test_version(capsys):
    with pytest.raises(SystemExit) as exit_:
        main.main(["--version"])
    assert exit_.value.code == 0
    assert "for SGLang 0.5.17" in capsys.readouterr().out


def test_a_command_is_needed(capsys):
    with pytest.raises(SystemExit) as exit_:
        main.main([])
    assert exit_.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_a_web_server_that_is_none_of_sglang_s(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{other.server_port}"
        assert main.main(["status", "--url", url]) == 2
        other.shutdown()
    told = capsys.readouterr().err
    assert f"{url}: expected an SGLang server, got a web page (status 404)" in told
    assert "<" not in told.split("got a web page")[1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "http://127.0.0.1:abc"], "expected http://HOST:PORT"),
        (["--api-key", "日本"], "--api-key: expected ASCII"),
    ],
)
def test_what_cannot_be_sent_is_said(arguments, told, capsys):
    assert main.main(["status", *arguments]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer", ["[1, 2]", "null", '{"internal_states": "x"}', '{"internal_states": [1]}', "{}"]
)
def test_an_answer_that_is_no_state_is_another_server(answer, capsys):
    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.encode())

    with HTTPServer(("127.0.0.1", 0), Handler) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        assert main.main(["status", "--url", f"http://127.0.0.1:{other.server_port}"]) == 2
        other.shutdown()
    assert "expected a server whose worker is sglang-specv2's" in capsys.readouterr().err
