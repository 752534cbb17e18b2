import pytest

from sglang_specv2.draft_sync import choose, explain_mode
from sglang_specv2.draft_sync.choice import KV_ARCHITECTURES, reason_against_kv
from sglang_specv2.errors import ConfigError

EAGLE3 = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1}


@pytest.mark.parametrize("architecture", KV_ARCHITECTURES)
def test_drafts_whose_k_and_v_need_no_attention(architecture):
    config = {"architectures": [architecture], "num_hidden_layers": 1}

    assert reason_against_kv(config) is None
    assert explain_mode(config)[0] == "kv"


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ({}, "unknown"),
        ({"architectures": []}, "unknown"),
        ({"architectures": ["DeepseekV3ForCausalLMNextN"]}, "DeepseekV3ForCausalLMNextN"),
        ({**EAGLE3, "num_hidden_layers": 3}, "3 layers"),
        ({**EAGLE3, "quantization_config": {"bits": 4}}, "quantized"),
        ({**EAGLE3, "rope_scaling": {"mrope_section": [1, 1, 2]}}, "multimodal"),
        ({**EAGLE3, "rope_parameters": {"mrope_section": [1, 1, 2]}}, "multimodal"),
    ],
)
def test_every_other_draft_falls_back_with_a_reason(config, word):
    reason = reason_against_kv(config)

    assert word in reason
    assert explain_mode(config) == ("extend", reason)
    with pytest.raises(ConfigError, match="Use auto or extend"):
        choose("kv", reason)


@pytest.mark.parametrize("requested", ["extend", "off"])
@pytest.mark.parametrize("against", [None, "a reason"])
def test_what_was_asked_for_is_what_runs(requested, against):
    assert choose(requested, against).mode == requested


def test_kv_on_request_where_it_is_possible():
    assert choose("kv", None).mode == "kv"
    assert choose("auto", None).mode == "kv"
    assert choose("auto", "a reason").mode == "extend"
