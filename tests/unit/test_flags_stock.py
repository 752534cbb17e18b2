"""Flags and keywords on the installed SGLang, in processes of its own commands."""

import sys
from pathlib import Path

import pytest
import stock_sglang

SCRIPT = """
import copy, dataclasses, json, multiprocessing, pickle, sys

def options(server_args):
    from sglang_specv2.config import SpecV2Config
    config = SpecV2Config.from_server_args(server_args)
    return [server_args.specv2_options, config.disable_batch_threshold]

def in_child(server_args, queue):
    queue.put(options(server_args))

def main():
    target, draft = sys.argv[1:]
    from sglang.srt.plugins import load_plugins
    load_plugins()
    from sglang.srt.server_args import ServerArgs, prepare_server_args
    base = dict(
        model_path=target, device="cpu", skip_tokenizer_init=True, speculative_algorithm="EAGLE3",
        speculative_draft_model_path=draft, speculative_num_steps=2, speculative_eagle_topk=1,
        speculative_num_draft_tokens=3,
    )
    argv = [part for name, value in base.items() if value is not True
            for part in ("--" + name.replace("_", "-"), str(value))]
    argv += ["--skip-tokenizer-init", "--speculative-disable-batch-threshold", "9"]
    found = {}

    args = prepare_server_args(argv)
    found["flag"] = options(args)
    found["replace"] = options(dataclasses.replace(args, port=1234))
    found["draft copy"] = options(copy.deepcopy(args))
    found["asdict"] = dataclasses.asdict(args)["specv2_options"]
    with open("config.yaml", "w") as file:
        file.write("speculative-disable-batch-threshold: 7\\n")
    found["config file"] = options(
        prepare_server_args(["--config", "config.yaml", *argv[:-2]])
    )
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=in_child, args=(args, queue))
    child.start()
    found["scheduler process"] = queue.get(timeout=120)
    child.join()

    found["keyword"] = options(ServerArgs(**base, speculative_disable_batch_threshold=8))
    found["nothing"] = options(ServerArgs(**base))
    found["max_running_requests"] = args.max_running_requests
    for name, wrong in {
        "zero": dict(speculative_disable_batch_threshold=0),
        "pipeline": dict(speculative_dynamic="always", pp_size=2),
        "no speculation": dict(speculative_dynamic="never", speculative_algorithm=None),
    }.items():
        try:
            ServerArgs(**{**base, **wrong})
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"

    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    found["worker"] = SpeculativeAlgorithm.EAGLE3.create_worker(args).__name__
    print(json.dumps(found))

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def plugin(tmp_path_factory) -> Path:
    return stock_sglang.entry_points(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def found(plugin, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    target, draft = stock_sglang.model_folders(folder)
    env = stock_sglang.environment(plugin, SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD="30")
    return stock_sglang.answer(SCRIPT, env, str(target), str(draft), cwd=folder)


@pytest.mark.parametrize("way", ["flag", "replace", "draft copy", "scheduler process"])
def test_flag_wins_over_the_variable_and_survives(found, way):
    assert found[way] == [{"disable_batch_threshold": 9}, 9]


def test_server_info_shows_the_options(found):
    assert found["asdict"] == {"disable_batch_threshold": 9}


def test_configuration_file(found):
    assert found["config file"] == [{"disable_batch_threshold": 7}, 7]


def test_engine_keyword(found):
    assert found["keyword"] == [{"disable_batch_threshold": 8}, 8]


def test_variable_alone(found):
    assert found["nothing"] == [{}, 30]


def test_sglang_sets_48(found):
    assert found["max_running_requests"] == 48


def test_errors_at_start(found):
    assert found["zero"].startswith("ConfigError: --speculative-disable-batch-threshold: expected")
    assert "--pipeline-parallel-size 2" in found["pipeline"]
    assert found["pipeline"].startswith("UnsupportedError: ")
    assert "give EAGLE or EAGLE3" in found["no speculation"]


def test_worker_is_ours(found):
    assert found["worker"] == "SpecV2Worker"


FLAGS = (
    "--speculative-disable-batch-threshold",
    "--speculative-enable-batch-threshold",
    "--speculative-switch-min-dwell",
    "--speculative-dynamic",
    "--speculative-draft-sync",
)
LAUNCHERS = {
    "launch_server": [sys.executable, "-m", "sglang.launch_server", "--help"],
    "sglang serve": [
        sys.executable,
        "-c",
        "from sglang.cli.main import main; main()",
        "serve",
        "--help",
    ],
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_help_of_stock_commands(plugin, launcher):
    shown = stock_sglang.run(LAUNCHERS[launcher], stock_sglang.environment(plugin))
    for flag in FLAGS:
        assert shown.stdout.count(f"\n  {flag} ") == 1, shown.stderr


def test_switched_off(plugin):
    env = stock_sglang.environment(plugin, SGLANG_SPECV2="0")
    shown = stock_sglang.run(LAUNCHERS["sglang serve"], env)
    assert "--speculative-num-steps" in shown.stdout, shown.stderr
    assert not any(flag in shown.stdout for flag in FLAGS)
