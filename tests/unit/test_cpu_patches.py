"""The CPU engine's defaults and its detour around the greedy verification, on stand-in modules."""

import os
from types import SimpleNamespace

import pytest

from sglang_specv2.cpu import patches
from sglang_specv2.errors import ConfigError


def server_args(**given):
    """A ServerArgs with the defaults that matter, resolved under the patch."""

    class ServerArgs:
        def __init__(self):
            self.attention_backend = self.max_total_tokens = None
            self.device, self.dtype, self.tp_size, self.sleep_on_idle = "cpu", "auto", 1, False
            vars(self).update(given)

        def _handle_missing_default_values(self):
            pass

    patches._default_to_what_runs(SimpleNamespace(ServerArgs=ServerArgs))
    args = ServerArgs()
    args._handle_missing_default_values()
    return args


def test_defaults_are_what_runs_here(monkeypatch):
    monkeypatch.delenv("SGLANG_CPU_OMP_THREADS_BIND", raising=False)
    args = server_args(tp_size=3)
    assert (args.attention_backend, args.dtype) == ("torch_native", "float32")
    assert args.max_total_tokens == patches.MAX_TOTAL_TOKENS
    assert args.sleep_on_idle
    assert os.environ["SGLANG_CPU_OMP_THREADS_BIND"] == "0|1|2"


def test_what_was_given_stays(monkeypatch):
    monkeypatch.setenv("SGLANG_CPU_OMP_THREADS_BIND", "4|5")
    args = server_args(dtype="bfloat16", max_total_tokens=99, tp_size=2)
    assert (args.dtype, args.max_total_tokens) == ("bfloat16", 99)
    assert os.environ["SGLANG_CPU_OMP_THREADS_BIND"] == "4|5"


def test_another_device_is_refused():
    with pytest.raises(ConfigError, match=r"device is 'cuda'.*--device cpu"):
        server_args(device="cuda")


@pytest.mark.parametrize(
    ("greedy", "idle", "cpu_during"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
@pytest.mark.parametrize("fails", [False, True])
def test_the_flag_is_off_only_while_a_batch_samples(greedy, idle, cpu_during, fails):
    seen = []

    def eagle_sample(verify_input, batch):
        seen.append(module._is_cpu)
        if fails:
            raise KeyError

    module = SimpleNamespace(_is_cpu=True, eagle_sample=eagle_sample)
    patches._verify_by_sampling(module)
    batch = SimpleNamespace(
        forward_mode=SimpleNamespace(is_idle=lambda: idle),
        sampling_info=SimpleNamespace(is_all_greedy=greedy),
    )

    if fails:
        with pytest.raises(KeyError):
            module.eagle_sample(None, batch)
    else:
        module.eagle_sample(None, batch)

    assert seen == [cpu_during]
    assert module._is_cpu is True
