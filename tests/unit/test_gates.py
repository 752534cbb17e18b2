import logging
import sys
from argparse import Namespace
from types import ModuleType

import pytest

from sglang_specv2 import gates
from sglang_specv2.errors import UnsupportedError

EAGLE = {"speculative_algorithm": "EAGLE3"}
HF = Namespace(architectures=["GptOssForCausalLM"])


@pytest.mark.parametrize(
    "given",
    [
        {"speculative_algorithm": "EAGLE"},
        {"speculative_algorithm": "EAGLE3"},
        {"speculative_algorithm": "NEXTN"},
        {"speculative_algorithm": "eagle"},
        {**EAGLE, "speculative_eagle_topk": 8, "speculative_num_draft_tokens": 16},
        {**EAGLE, "tp_size": 4, "pp_size": 1, "disaggregation_mode": "null"},
        {**EAGLE, "enable_dp_attention": False, "speculative_adaptive": False},
    ],
)
def test_supported(given):
    assert gates.reasons(Namespace(**given)) == []


@pytest.mark.parametrize(
    ("given", "flag", "way_out"),
    [
        ({"speculative_algorithm": None}, "--speculative-algorithm", "give EAGLE or EAGLE3"),
        ({}, "--speculative-algorithm", "give EAGLE or EAGLE3"),
        ({"speculative_algorithm": "STANDALONE"}, "STANDALONE", "use EAGLE or EAGLE3"),
        ({"speculative_algorithm": "NGRAM"}, "NGRAM", "use EAGLE or EAGLE3"),
        ({"speculative_algorithm": "FROZEN_KV_MTP"}, "FROZEN_KV_MTP", "use EAGLE or EAGLE3"),
        ({"speculative_algorithm": "MY_OWN"}, "MY_OWN", "use EAGLE or EAGLE3"),
        ({**EAGLE, "enable_multi_layer_eagle": True}, "--enable-multi-layer-eagle", "use a single"),
        ({**EAGLE, "speculative_adaptive": True}, "--speculative-adaptive", "leave it out"),
        ({**EAGLE, "enable_dp_attention": True}, "--enable-dp-attention", "use tensor"),
        ({**EAGLE, "pp_size": 2}, "--pipeline-parallel-size 2", "use tensor"),
        ({**EAGLE, "enable_two_batch_overlap": True}, "--enable-two-batch-overlap", "leave it out"),
        ({**EAGLE, "enable_pdmux": True}, "--enable-pdmux", "leave it out"),
        ({**EAGLE, "disaggregation_mode": "decode"}, "--disaggregation-mode decode", "together"),
        (
            {**EAGLE, "model_config": Namespace(hf_config=HF, is_hybrid_swa=True)},
            "GptOssForCausalLM",
            "--disable-hybrid-swa-memory",
        ),
        (
            {**EAGLE, "model_config": Namespace(hf_config=HF, model_is_mrope=True)},
            "multimodal rotary positions",
            "leave out the options",
        ),
    ],
)
def test_unsupported_names_the_flag_and_the_way_out(given, flag, way_out, monkeypatch):
    know_recurrent_models(monkeypatch, recurrent=False)
    (reason,) = gates.reasons(Namespace(**given))
    assert flag in reason
    assert way_out in reason


def know_recurrent_models(monkeypatch, recurrent):
    module = ModuleType("sglang.srt.configs.hybrid_arch")
    module.mambaish_config = lambda model_config: object() if recurrent else None
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_recurrent_models(monkeypatch):
    know_recurrent_models(monkeypatch, recurrent=True)
    model = Namespace(hf_config=Namespace(architectures=["Qwen3NextForCausalLM"]))
    (reason,) = gates.reasons(Namespace(**EAGLE, model_config=model))
    assert reason.startswith("Qwen3NextForCausalLM keeps recurrent state")


@pytest.mark.parametrize(("value", "refused"), [("1", True), ("0", False)])
def test_the_plan_stream_is_refused(monkeypatch, value, refused):
    monkeypatch.setenv("SGLANG_ENABLE_OVERLAP_PLAN_STREAM", value)
    reasons = gates.reasons(Namespace(**EAGLE))
    assert ["SGLANG_ENABLE_OVERLAP_PLAN_STREAM" in reason for reason in reasons] == [True] * refused


def test_every_reason_is_given():
    args = Namespace(**EAGLE, pp_size=2, enable_pdmux=True)
    assert len(gates.reasons(args)) == 2


OPTION = {"disable_batch_threshold": 8}
VARIABLE = {"SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD": "8"}


@pytest.mark.parametrize(
    ("options", "environ", "name"),
    [
        (OPTION, {}, "--speculative-disable-batch-threshold"),
        ({}, VARIABLE, "SGLANG_SPECV2_DISABLE_BATCH_THRESHOLD"),
    ],
)
def test_asked_for_is_refused(options, environ, name):
    args = Namespace(**EAGLE, specv2_options=options)
    with pytest.raises(UnsupportedError) as error:
        gates.refuse_or_leave(args, ["first reason", "second reason"], environ)
    assert str(error.value).startswith(f"{name}: ")
    assert "first reason" in str(error.value)
    assert "second reason" in str(error.value)


def test_not_asked_for_is_left_with_one_line(caplog):
    with caplog.at_level(logging.INFO):
        gates.refuse_or_leave(Namespace(**EAGLE), ["first reason", "second reason"], {})
    (record,) = caplog.records
    assert "first reason; second reason" in record.getMessage()


def test_a_server_without_speculation_is_refused_for_options_only(caplog):
    with pytest.raises(UnsupportedError):
        gates.refuse_or_leave(Namespace(specv2_options=OPTION), ["reason"], {})
    gates.refuse_or_leave(Namespace(specv2_options={}), ["reason"], VARIABLE)
    assert len(caplog.records) == 1


def test_a_server_that_has_nothing_to_do_with_us_is_left_in_silence(caplog):
    with caplog.at_level(logging.DEBUG):
        gates.refuse_or_leave(Namespace(), gates.reasons(Namespace()), {})
    assert not caplog.records


def test_no_reason_no_error():
    gates.refuse_or_leave(Namespace(**EAGLE, specv2_options=OPTION), [], {})
