"""Flags on a stand-in for ServerArgs that is built the way SGLang's is; see test_flags_stock."""

import argparse
import copy
import dataclasses
import pickle
from types import ModuleType

import pytest

from sglang_specv2 import flags
from sglang_specv2.errors import CompatibilityError, ConfigError, UnsupportedError


@dataclasses.dataclass
class Pristine:
    model_path: str
    speculative_algorithm: str | None = None
    max_running_requests: int | None = None
    pp_size: int = 1
    cuda_graph_config: argparse.Namespace | None = None
    speculative_num_steps: int | None = None
    speculative_eagle_topk: int | None = None
    node_rank: int = 0
    stop_words: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self):
        if self.model_path == "dummy":
            return
        if self.speculative_algorithm and self.max_running_requests is None:
            self.max_running_requests = 48

    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", required=True)
        parser.add_argument("--speculative-algorithm")
        parser.add_argument("--max-running-requests", type=int)

    @classmethod
    def from_cli_args(cls, args):
        names = [field.name for field in dataclasses.fields(cls) if hasattr(args, field.name)]
        return cls(**{name: getattr(args, name) for name in names})


class ServerArgs(Pristine):
    """Set anew for every test; at module level so that it can be pickled."""


@pytest.fixture
def server_args(monkeypatch):
    for option in flags.OPTIONS:
        monkeypatch.delenv(option.variable, raising=False)
    cls = dataclasses.make_dataclass(
        "ServerArgs",
        [(f.name, f.type, f) for f in map(copy.copy, dataclasses.fields(Pristine))],
        namespace={
            name: vars(Pristine)[name]
            for name in ("__post_init__", "add_cli_args", "from_cli_args")
        },
    )
    cls.__module__ = __name__
    monkeypatch.setitem(globals(), "ServerArgs", cls)
    module = ModuleType("sglang.srt.server_args")
    module.ServerArgs = cls
    undo = flags.install(module)
    yield module
    undo()


def parse(server_args, *argv):
    parser = argparse.ArgumentParser(prog="sglang serve")
    server_args.ServerArgs.add_cli_args(parser)
    return server_args.ServerArgs.from_cli_args(
        parser.parse_args(["--model-path", "m", "--speculative-algorithm", "EAGLE3", *argv])
    )


def test_flags_become_the_dict(server_args):
    args = parse(
        server_args,
        "--speculative-disable-batch-threshold",
        "32",
        "--speculative-enable-batch-threshold=20",
        "--speculative-draft-sync",
        "extend",
    )
    assert args.specv2_options == {
        "disable_batch_threshold": 32,
        "enable_batch_threshold": 20,
        "draft_sync": "extend",
    }
    assert args.max_running_requests == 48


def test_no_flag_leaves_an_empty_dict(server_args):
    assert parse(server_args).specv2_options == {}


def test_last_flag_wins(server_args):
    flag = "--speculative-disable-batch-threshold"
    assert parse(server_args, flag, "3", flag, "5").specv2_options == {"disable_batch_threshold": 5}


@pytest.mark.parametrize("value", ["0", "-1", "abc"])
def test_parser_refuses_in_words(server_args, value, capsys):
    with pytest.raises(SystemExit):
        parse(server_args, "--speculative-disable-batch-threshold", value)
    assert (
        "argument --speculative-disable-batch-threshold: expected a whole number, at least 1, "
        f"got '{value}'" in capsys.readouterr().err
    )


def test_keywords(server_args):
    args = server_args.ServerArgs(
        model_path="m", speculative_algorithm="EAGLE", speculative_disable_batch_threshold=8
    )
    assert args.specv2_options == {"disable_batch_threshold": 8}
    assert args.model_path == "m"


def test_keyword_none_is_not_given(server_args):
    args = server_args.ServerArgs(
        "m", speculative_algorithm="EAGLE", speculative_disable_batch_threshold=None
    )
    assert args.specv2_options == {}


def test_unknown_keyword_is_still_refused_by_sglang(server_args):
    with pytest.raises(TypeError, match="speculative_disable_threshold"):
        server_args.ServerArgs(model_path="m", speculative_disable_threshold=8)


def test_wrong_value_of_a_keyword_is_refused_before_sglang_looks(server_args):
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        server_args.ServerArgs(speculative_disable_batch_threshold=0)


def test_wrong_variable_is_refused(server_args, monkeypatch):
    monkeypatch.setenv("SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD", "abc")
    with pytest.raises(ConfigError, match=r"SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD.*got 'abc'"):
        server_args.ServerArgs(model_path="m", speculative_algorithm="EAGLE")


def test_threshold_above_the_given_limit_is_refused(server_args):
    with pytest.raises(ConfigError, match=r"--max-running-requests 32, got 64"):
        parse(
            server_args,
            "--max-running-requests",
            "32",
            "--speculative-disable-batch-threshold",
            "64",
        )


def test_threshold_above_sglang_s_own_limit_is_left_to_a_warning(server_args):
    args = parse(server_args, "--speculative-disable-batch-threshold", "64")
    assert args.specv2_options == {"disable_batch_threshold": 64}


@pytest.mark.parametrize(("backend", "refused"), [("full", True), ("disabled", False)])
def test_threshold_above_the_planned_capture_sizes(server_args, backend, refused):
    phase = argparse.Namespace(backend=backend, bs=[1, 2, 8])

    def build():
        return server_args.ServerArgs(
            model_path="m",
            speculative_algorithm="EAGLE",
            cuda_graph_config=argparse.Namespace(decode=phase),
            speculative_disable_batch_threshold=16,
        )

    if refused:
        with pytest.raises(ConfigError, match="expected at most 8"):
            build()
    else:
        build()


def test_arguments_that_sglang_leaves_unresolved(server_args):
    args = server_args.ServerArgs(
        "dummy", speculative_algorithm="EAGLE", speculative_disable_batch_threshold=16
    )
    assert args.max_running_requests is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"speculative_num_steps": 2}, "expected at most 2, the value of --speculative-num-steps"),
        ({"speculative_num_steps": 9, "speculative_eagle_topk": 4}, r"trees .* 4\), got 1 too"),
        ({"speculative_num_steps": 9}, None),
        ({}, None),
    ],
)
def test_step_choices_are_looked_at_before_anything_is_loaded(server_args, given, told):
    def start():
        return server_args.ServerArgs(
            "m", speculative_algorithm="EAGLE3", speculative_step_choices="0,1,9", **given
        )

    if told is None:
        assert start().specv2_options == {"step_choices": (0, 1, 9)}
        return
    with pytest.raises(ConfigError, match=told):
        start()


def test_a_calibration_is_looked_at_before_anything_is_loaded(server_args, tmp_path):
    def start(file, **given):
        return server_args.ServerArgs(
            "m", speculative_algorithm="EAGLE3", speculative_calibration=str(file), **given
        )

    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(ConfigError, match="expected a file, got No such file"):
        start(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="got a broken file"):
        start(broken)
    assert start(tmp_path / "none.json", node_rank=1), "the first node reads it"


@pytest.mark.parametrize("place", ["no/such/folder.json", ""])
def test_a_place_for_a_calibration_is_looked_at_before_anything_is_loaded(
    server_args, tmp_path, monkeypatch, place
):
    monkeypatch.setenv("SGLANG_SPECV2_CALIBRATION_OUT", str(tmp_path / place))
    with pytest.raises(ConfigError, match="CALIBRATION_OUT: expected a file in a folder"):
        server_args.ServerArgs("m", speculative_algorithm="EAGLE3")


def test_unsupported_feature_is_refused(server_args):
    with pytest.raises(UnsupportedError) as error:
        server_args.ServerArgs(
            model_path="m", speculative_algorithm="EAGLE", pp_size=2, speculative_dynamic="never"
        )
    assert "--speculative-dynamic" in str(error.value)
    assert "--pipeline-parallel-size 2" in str(error.value)


def test_unsupported_feature_without_our_options_is_left_alone(server_args):
    args = server_args.ServerArgs(model_path="m", speculative_algorithm="EAGLE", pp_size=2)
    assert args.specv2_options == {}


@pytest.mark.parametrize(
    "copied",
    [
        lambda args: pickle.loads(pickle.dumps(args)),
        copy.deepcopy,
        dataclasses.replace,
        lambda args: dataclasses.replace(args, max_running_requests=96),
        lambda args: argparse.Namespace(**dataclasses.asdict(args)),
    ],
    ids=["pickle", "deepcopy", "replace", "replace a field", "asdict"],
)
def test_options_survive_copies(server_args, copied):
    args = parse(server_args, "--speculative-disable-batch-threshold", "8")
    assert copied(args).specv2_options == {"disable_batch_threshold": 8}


def test_instances_do_not_share_the_dict(server_args):
    first, second = parse(server_args), parse(server_args)
    first.specv2_options["draft_sync"] = "kv"
    assert second.specv2_options == {}


def test_installing_twice_adds_flags_once(server_args):
    undo = flags.install(server_args)
    parse(server_args, "--speculative-draft-sync", "kv")
    undo()
    assert flags.in_place(server_args)


def test_undo(server_args):
    module = ModuleType("sglang.srt.server_args")
    module.ServerArgs = Pristine
    names = ("add_cli_args", "__init__")
    before = {name: vars(Pristine)[name] for name in names}
    flags.install(module)()
    assert {name: vars(Pristine)[name] for name in names} == before
    assert [field.name for field in dataclasses.fields(Pristine)][-1] == "stop_words"
    assert not flags.in_place(module)


def test_a_module_without_server_args_is_incompatible():
    with pytest.raises(CompatibilityError, match="ServerArgs"):
        flags.install(ModuleType("sglang.srt.server_args"))
