"""Features of SGLang beside a threshold, on its real argument parser: served, or refused in words.

A refusal names the flag that is in the way and what to do; nothing is dropped in silence.
"""

import json

import pytest
import stock_sglang

SCRIPT = """
import contextlib, io, json, sys

def outcome(argv):
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            args = prepare_server_args(argv)
        algorithm = SpeculativeAlgorithm.from_string(args.speculative_algorithm)
        return "served by " + algorithm.create_worker(args).__name__
    except SystemExit:
        return "argparse: " + told.getvalue().splitlines()[-1]
    except Exception as error:
        return f"{type(error).__name__}: {error}"

from sglang.srt.plugins import load_plugins
load_plugins()
print(json.dumps({name: outcome(argv) for name, argv in json.loads(sys.argv[1]).items()}))
"""

CHAIN = (
    "--device cpu --skip-tokenizer-init --speculative-algorithm EAGLE3 "
    "--speculative-eagle-topk 1 --speculative-num-steps 3 --speculative-num-draft-tokens 4"
)
THRESHOLD = "--speculative-disable-batch-threshold"

SERVED = {
    "a chain": "",
    "a tree": "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16",
    "EAGLE": "--speculative-algorithm EAGLE",
    "NEXTN": "--speculative-algorithm NEXTN",
    "tensor parallelism": "--tp-size 2",
    "data parallelism": "--dp-size 2",
    "pages": "--page-size 64",
    "no overlap": "--disable-overlap-schedule",
    "no graphs": "--cuda-graph-backend-decode disabled",
    "no radix cache": "--disable-radix-cache",
    "chunked prefill": "--chunked-prefill-size 64",
    "capture failures tolerated": "--speculative-capture-failure eager",
}
REFUSED = {
    "--enable-dp-attention": ("--tp-size 2 --dp-size 2", "use tensor parallelism, or several"),
    "--enable-multi-layer-eagle": ("", "use a single-layer EAGLE draft"),
    "--enable-two-batch-overlap": ("", "leave it out"),
    "--enable-pdmux": ("", "leave it out"),
    "--pipeline-parallel-size 2": ("", "use tensor parallelism"),
    "--speculative-adaptive": ("", "leave it out, or leave out the options of sglang-specv2"),
    "--disaggregation-mode prefill": ("", "serve prefill and decode together"),
    "--disaggregation-mode decode": ("", "serve prefill and decode together"),
    "--speculative-algorithm STANDALONE": ("", "use EAGLE or EAGLE3"),
    "--speculative-algorithm NGRAM": ("", "use EAGLE or EAGLE3"),
    "--speculative-algorithm FROZEN_KV_MTP": ("", "use EAGLE or EAGLE3"),
}
REFUSED_BY_SGLANG_ON_A_CPU = {
    "--speculative-algorithm DFLASH": "only supports CUDA",
    "--speculative-algorithm DSPARK": "only supports CUDA",
}
WRONG = {
    f"{THRESHOLD} 0": "expected a whole number, at least 1, got '0'",
    f"{THRESHOLD} -1": "expected a whole number, at least 1, got '-1'",
    f"{THRESHOLD} abc": "expected a whole number, at least 1, got 'abc'",
    f"{THRESHOLD} 9 --max-running-requests 8": "expected less than --max-running-requests 8, got 9",
    f"{THRESHOLD} 9 --speculative-enable-batch-threshold 10": "expected at most 9",
    f"{THRESHOLD} 9 --speculative-dynamic always": "contradicts",
    f"{THRESHOLD} 9 --speculative-capture-failure ignore": "expected one of refuse, eager",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What became of each command line, asked of one process."""
    folder = tmp_path_factory.mktemp("refusals")
    target, draft = stock_sglang.model_folders(folder)
    env = stock_sglang.environment(stock_sglang.entry_points(folder))
    models = f"--model-path {target} --speculative-draft-model-path {draft}"
    lines = {name: f"{flags} {THRESHOLD} 9" for name, flags in SERVED.items()}
    for flag, (with_it, _) in REFUSED.items():
        lines[flag] = f"{with_it} {flag} {THRESHOLD} 9"
        lines[f"{flag}, and none of our options"] = f"{with_it} {flag}"
    lines |= {flag: f"{flag} {THRESHOLD} 9" for flag in REFUSED_BY_SGLANG_ON_A_CPU}
    lines |= {flags: flags for flags in WRONG}
    command_lines = {name: f"{CHAIN} {models} {flags}".split() for name, flags in lines.items()}
    return stock_sglang.answer(SCRIPT, env, json.dumps(command_lines), cwd=folder)


@pytest.mark.parametrize("feature", SERVED)
def test_served_by_our_worker(outcomes, feature):
    assert outcomes[feature] == "served by SpecV2Worker"


@pytest.mark.parametrize("flag", REFUSED)
def test_refused_with_the_flag_and_the_way_out(outcomes, flag):
    _, way_out = REFUSED[flag]
    kind, _, message = outcomes[flag].partition(": ")
    asked, _, reasons = message.partition("\n")

    assert kind == "UnsupportedError"
    assert asked == f"{THRESHOLD}: dynamic speculation cannot be had here."
    assert f"  - {flag}" in reasons
    assert way_out in reasons


@pytest.mark.parametrize("flag", REFUSED)
def test_left_to_sglang_where_nothing_was_asked_of_us(outcomes, flag):
    outcome = outcomes[f"{flag}, and none of our options"]
    assert outcome.startswith("served by ")
    assert outcome != "served by SpecV2Worker"


@pytest.mark.parametrize("flag", REFUSED_BY_SGLANG_ON_A_CPU)
def test_refused_by_sglang_itself(outcomes, flag):
    assert REFUSED_BY_SGLANG_ON_A_CPU[flag] in outcomes[flag]
    assert not outcomes[flag].startswith("served")


@pytest.mark.parametrize("flags", WRONG)
def test_wrong_values_are_named(outcomes, flags):
    name = "--speculative-capture-failure" if "capture" in flags else THRESHOLD
    assert WRONG[flags] in outcomes[flags]
    assert name in outcomes[flags]
