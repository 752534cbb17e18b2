"""Who may look at a server and change it: SGLang's keys hold for what this package adds, too.

What it adds travels on two of SGLang's endpoints: /server_info tells, /set_internal_state takes.
"""

import ast
from pathlib import Path

import pytest

import cuda_graphs
import sglang_specv2
from sglang_specv2.cli.main import main

KEY, ADMIN_KEY = "key-of-clients", "key-of-the-operator"


@pytest.fixture(scope="module")
def guarded(start_probed):
    return start_probed(
        *("--speculative-dynamic", "never"), "--api-key", KEY, "--admin-api-key", ADMIN_KEY
    )


def bearer(key):
    return {"Authorization": f"Bearer {key}"} if key else {}


@pytest.mark.parametrize(
    ("method", "path", "body", "key"),
    [
        ("GET", "/server_info", None, KEY),
        ("POST", "/generate", {"input_ids": [1, 2], "sampling_params": {"max_new_tokens": 2}}, KEY),
        ("POST", "/set_internal_state", {"server_args": {"pp_max_micro_batch_size": 4}}, ADMIN_KEY),
        ("POST", "/flush_cache", None, ADMIN_KEY),
    ],
)
def test_each_endpoint_takes_its_key_and_no_other(guarded, method, path, body, key):
    for given in (None, "wrong", KEY, ADMIN_KEY):
        guarded.headers = bearer(given)
        answer = guarded.ask(method, path, body)
        assert answer.status_code == (200 if given == key else 401), (given, answer.text)
        if given != key:
            assert "speculative_dynamic_state" not in answer.text


def test_the_state_tells_no_key(guarded):
    guarded.headers = bearer(KEY)
    told = guarded.state()

    assert KEY not in str(told)
    assert ADMIN_KEY not in str(told)


def test_the_command_that_changes_settings_takes_both_keys(guarded, capsys):
    change = ["set", "--url", guarded.url, "--api-key", KEY, "--policy", "always"]
    assert main(change) == 2
    assert "give --api-key, and --admin-api-key" in capsys.readouterr().err
    assert main([*change, "--admin-api-key", ADMIN_KEY]) == 0
    assert "policy        always" in capsys.readouterr().out


def calls(tree):
    """Names of what is called, with the module where there is one: ``pickle.loads``, ``eval``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


PACKAGES = (Path(sglang_specv2.__file__).parent, Path(cuda_graphs.__file__).parent)
SOURCES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
DANGEROUS = (
    *("eval", "exec", "compile", "__import__"),
    *("os.system", "os.popen", "torch.load", "yaml.load", "yaml.unsafe_load"),
)
DANGEROUS_MODULES = {"pickle", "dill", "marshal", "shelve", "cloudpickle"}


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: "/".join(path.parts[-2:]))
def test_nothing_of_ours_evaluates_or_unpickles(source):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for name in calls(tree):
        assert name not in DANGEROUS, name
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            for module in (*names, getattr(node, "module", None)):
                assert str(module).split(".")[0] not in DANGEROUS_MODULES, module
        if isinstance(node, ast.keyword) and node.arg == "shell":
            assert isinstance(node.value, ast.Constant), "a shell"
            assert node.value.value is False, "a shell"


SERVING = [
    path
    for path in SOURCES
    if not {"cli", "demo", "benchmark", "cpu", "calibration"} & {path.parts[-2], path.stem}
]
"""What runs in a server's processes; commands write the files that they are given."""


WRITES = {"open", "mkdir", "mkdtemp", "write_text", "write_bytes", "unlink", "rename", "symlink_to"}


@pytest.mark.parametrize("source", SERVING, ids=lambda path: "/".join(path.parts[-2:]))
def test_a_server_writes_no_file_of_ours(source):
    tree = ast.parse(source.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func).rpartition(".")[2] not in WRITES, ast.unparse(node)
