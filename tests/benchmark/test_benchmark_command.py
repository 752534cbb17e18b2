"""What the command makes of its options, before anything starts."""

import argparse
import subprocess
import sys

import pytest

from sglang_specv2 import gpus
from sglang_specv2.benchmark import pairs
from sglang_specv2.benchmark.arms import ARMS, Choices
from sglang_specv2.benchmark.load import Load, Phase, ramp, square
from sglang_specv2.benchmark.results import Results
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.stations import stations
from sglang_specv2.benchmark.workloads import WORKLOADS, Prompts
from sglang_specv2.cli import bench, main, plot
from sglang_specv2.errors import ConfigError


def parsed(*options):
    args, rest = main.build_parser().parse_known_args(["bench", *options])
    return bench.settings_of(args, rest)


@pytest.fixture
def a_gpu(monkeypatch):
    monkeypatch.setattr(gpus, "find", lambda: [gpus.Gpu("NVIDIA H200", 1, 1, "580")])


@pytest.fixture
def no_gpu(monkeypatch):
    def find():
        raise gpus.NoGpuError("none")

    monkeypatch.setattr(gpus, "find", find)


def test_without_a_gpu_it_is_the_smoke_size_on_the_cpu(no_gpu):
    assert parsed() == bench.SIZES["smoke"]
    assert parsed().cpu


def test_with_a_gpu_it_is_the_quick_size_without_a_threshold(a_gpu):
    settings = parsed()
    assert not settings.cpu
    assert settings.levels == bench.SIZES["quick"].levels
    assert settings.arms == ("none", "stock", "adaptive-warm", "adaptive-cold", "auto")
    assert "threshold" in parsed("--threshold", "24").arms


def test_options_change_the_preset(a_gpu):
    settings = parsed(
        *("--size", "full", "--levels", "1", "2", "--recovery", "--timeline", "none"),
        *("--natural", "--no-side-by-side", "--simulate-accept-len", "1.4"),
        *("--", "--page-size", "16"),
    )
    assert settings.levels == (1, 2)
    assert settings.rounds == bench.SIZES["full"].rounds
    assert settings.recovery_plain_tokens == ()
    assert settings.timelines == ()
    assert settings.natural
    assert not settings.side_by_side
    assert settings.simulate_accept_length == 1.4
    assert settings.server_flags == ("--page-size", "16")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--arms", "none", "nono"], "--arms nono: expected one of none, stock"),
        (["--arms", "none", "none"], "--arms: expected each name once"),
        (["--levels", "0"], "--levels: expected at least 1, got 0"),
        (["--rates", "-1"], "--rates: expected at least"),
        (["--rounds", "0"], "--rounds: expected at least 1, got 0"),
        (["--timeline-rounds", "0"], "--timeline-rounds: expected at least 1, got 0"),
        (
            ["--timeline", "none", "--timeline-rounds", "2"],
            "expected a --timeline to repeat, got none",
        ),
        (["--simulate-accept-len", "0.5"], "at least 1, got 0.5"),
        (["--simulate-accept-len", "nan"], "at least 1, got nan"),
        (["--rates", "nan"], "--rates: expected at least 0.001, got nan"),
        (["--time-limit", "-4"], "--time-limit: expected at least 0.001, got -4"),
        (["--poisson-s", "0"], "--poisson-s: expected at least"),
        (["--threshold", "0"], "--threshold: expected at least 1, got 0"),
        (["--tier-from", "0"], "--tier-from: expected at least 1, got 0"),
        (["--arms", "--recovery"], "nothing to measure"),
        (["--page-size", "16"], "flags of the servers go after `--`"),
    ],
)
def test_what_cannot_be_right_is_refused(a_gpu, options, told):
    with pytest.raises(ConfigError, match=told):
        parsed(*options)


def test_the_arm_threshold_needs_one(tmp_path):
    with pytest.raises(ConfigError, match="needs --threshold N"):
        ARMS["threshold"].arguments([], Choices(None, 2, tmp_path))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shape": "llama-8b", "model": "m"}, "--shape llama-8b and --model or --draft"),
        ({"model": "m"}, "--model and --draft together"),
        ({"draft": "d"}, "--model and --draft together"),
    ],
)
def test_a_pair_is_whole_and_one(tmp_path, given, told):
    options = {"shape": None, "model": None, "draft": None, **given}
    with pytest.raises(ConfigError, match=told):
        pairs.choose(**options, folder=tmp_path)


def test_prompts_that_do_not_fit_are_refused_not_cut():
    with pytest.raises(ConfigError, match="--prompt-tokens 100000: expected at most 80"):
        Prompts(WORKLOADS["random"], pairs.bundled(), 64, 100_000)
    assert len(Prompts(WORKLOADS["random"], pairs.bundled(), 64, 8000).make(1, 0)[0]) == 8000


def test_nothing_is_written_where_no_results_may_go(tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    for out, found in ((tmp_path, "found mine.txt"), (tmp_path / "mine.txt", "found a file")):
        assert main.main(["bench", "--size", "smoke", "--out", str(out)]) == 2
        assert found in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def server_info(**changed):
    state = {"policy": "threshold", "draft_sync": "kv"}
    info = {"speculative_algorithm": "EAGLE3", "speculative_adaptive": False}
    return info | {"internal_states": [{"speculative_dynamic_state": state}]} | changed


@pytest.mark.parametrize(
    ("arm", "info", "told"),
    [
        ("threshold", server_info(), None),
        ("auto", server_info(), "expected policy auto, found threshold"),
        ("threshold-unsynced", server_info(), "expected draft_sync off, found kv"),
        ("stock", server_info(), "expected SGLang's own worker"),
        ("stock", server_info(internal_states=[{}]), None),
        ("threshold", server_info(internal_states=[{}]), "the plugin did not load"),
        ("none", server_info(internal_states=[{}]), "expected no speculation, found EAGLE3"),
        ("adaptive-cold", server_info(internal_states=[{}]), "SGLang turned it the other way"),
    ],
)
def test_a_server_that_is_not_its_arm_is_noticed(arm, info, told):
    found = ARMS[arm].difference(info)
    assert found == told or told in found


def build(folder, **changed):
    settings = Settings(**{"arms": ("none", "stock", "threshold"), "threshold": 4, **changed})
    pair = pairs.Pair("p", "target", "draft")
    made = stations(settings, pair, pair, prompt_tokens=10, results=Results(folder))
    return {station.name: station for station in made}


def test_arms_differ_in_how_they_speculate_and_in_nothing_else(tmp_path):
    made = build(tmp_path, server_flags=("--page-size", "16"))
    none, stock, ours = (made[name].command for name in ("none", "stock", "threshold"))
    assert [part for part in stock if part not in none] == [
        *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "2"),
        *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "3"),
        *("--speculative-draft-model-path", "draft"),
    ]
    assert [part for part in ours if part not in stock] == [
        "--speculative-disable-batch-threshold",
        "4",
    ]
    assert all(command[-2:] == ["--page-size", "16"] for command in (none, stock, ours))


def test_an_inherited_setting_does_not_reach_an_arm(tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_SPECV2_DYNAMIC", "never")
    monkeypatch.setenv("SGLANG_SPECV2", "0")
    made = build(tmp_path)
    assert made["stock"].environment()["SGLANG_SPECV2"] == "0"
    ours = made["threshold"].environment()
    assert [name for name in ours if name.startswith("SGLANG_SPECV2")] == []


def test_recovery_shares_servers_only_where_speed_means_nothing(tmp_path):
    recovery = {
        "threshold": 4,
        "recovery_plain_tokens": (48,),
        "recovery_matter": 2,
        "recovery_arms": ("stock", "threshold"),
    }
    on_cpu, on_gpu = (build(tmp_path, cpu=cpu, **recovery) for cpu in (True, False))
    assert [name for name, one in on_cpu.items() if one.recovery] == ["stock", "threshold"]
    assert [name for name, one in on_gpu.items() if one.recovery] == [
        "stock-recovery",
        "threshold-recovery",
    ]
    assert "--batch-notify-size" not in on_gpu["stock"].command


def test_simulated_acceptance_is_not_for_recovery(tmp_path):
    made = build(tmp_path, recovery_plain_tokens=(48,), simulate_accept_length=2.2)
    assert made["stock"].env["SGLANG_SIMULATE_ACC_LEN"] == "2.2"
    assert "SGLANG_SIMULATE_ACC_LEN" not in made["stock-recovery"].env


@pytest.mark.parametrize("name", WORKLOADS)
def test_prompts_fit_the_context_and_repeat_with_their_seed(name):
    pair = pairs.bundled()
    prompts = Prompts(WORKLOADS[name], pair, output_tokens=256, random_tokens=64)
    made = prompts.make(6, seed=1)
    assert made == prompts.make(6, seed=1)
    assert made != prompts.make(6, seed=2)
    assert all(0 < len(ids) <= pair.context_tokens - 256 for ids in made)
    assert all(0 <= token < pair.vocabulary_size for ids in made for token in ids)
    lengths = {"random": {64}, "long": {8192 - 256 - 32}}
    assert {len(ids) for ids in made} == lengths.get(name, {len(ids) for ids in made})


def test_coding_prompts_share_their_long_beginning():
    first, second = Prompts(WORKLOADS["coding"], pairs.bundled(), 256).make(2, seed=3)
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared > 2500
    assert first != second


def test_a_prompt_that_is_too_long_keeps_its_end():
    whole, cut = (
        Prompts(WORKLOADS["coding"], pairs.bundled(), output_tokens).make(1, seed=3)[0]
        for output_tokens in (256, 7000)
    )
    assert len(cut) == 8192 - 7000 - 32
    assert whole[-len(cut) :] == cut


def test_words_are_refused_for_dummy_weights(tmp_path):
    with pytest.raises(ConfigError, match="words mean nothing to dummy weights"):
        Prompts(WORKLOADS["chat"], pairs.shaped("tiny", tmp_path), 16)


def test_a_shape_has_a_word_for_each_token(tmp_path):
    from transformers import AutoTokenizer

    pair = pairs.shaped("tiny", tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(pair.target)
    ids = [3, 511, 100]
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


def test_ramps_and_waves_have_the_clients_and_the_time():
    up_and_down = ramp(12, 10.0)
    assert [phase.clients for phase in up_and_down] == [1, 2, 4, 8, 12, 8, 4, 2, 1]
    assert sum(phase.seconds for phase in up_and_down) == pytest.approx(10)
    assert [phase.clients for phase in ramp(1, 1.0)] == [1]
    assert square(128, 40.0) == [Phase(4, 5.0), Phase(64, 5.0)] * 4
    assert [phase.clients for phase in square(6, 9.0)] == [1, 3] * 3
    assert sum(phase.seconds for phase in square(6, 9.0)) == pytest.approx(9)


def test_a_round_has_the_requests_of_its_load():
    settings = Settings(requests_per_client=3, poisson_s=5)
    assert settings.requests_of(Load("closed", 4)) == 12
    assert settings.requests_of(Load("poisson", 0.5)) == 2


def test_plot_refuses_what_it_cannot_do(tmp_path):
    made = tmp_path / "a"
    made.mkdir()
    (made / "provenance.json").write_text("{}")
    args = argparse.Namespace(results=[made, made], out=None)
    with pytest.raises(ConfigError, match="expected --out"):
        plot.run(args, [])
    with pytest.raises(ConfigError, match="does not know --loud"):
        plot.run(args, ["--loud"])


def test_the_command_line_needs_no_client_library():
    script = (
        "import sys, sglang_specv2.cli.main\n"
        "print(*sorted({'aiohttp', 'matplotlib', 'rich', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
