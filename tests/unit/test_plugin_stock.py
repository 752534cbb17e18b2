"""Every route to the patches on the installed SGLang: whatever the order, one patch."""

import sys
from itertools import product

import pytest
import stock_sglang

COMMON = """
import itertools, json, sys

def layers(cls, name):
    method = vars(cls)[name]
    method = getattr(method, "__func__", method)
    n = 0
    while hasattr(method, "__wrapped__"):
        method, n = method.__wrapped__, n + 1
    return n

def patched():
    from sglang.srt.server_args import ServerArgs
    from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
    return [
        layers(ServerArgs, "add_cli_args"),
        layers(ServerArgs, "__init__"),
        layers(SpeculativeAlgorithm, "create_worker"),
    ]
"""

ORDERS = (
    COMMON
    + """
import sglang.srt.plugins as plugins
from sglang_specv2 import hook, plugin

def stock():
    plugins._plugins_loaded = False
    plugins.load_plugins()

routes = {"entry point": stock, "import": hook.install, "watch": plugin.watch_imports}
found = {"at first": patched()}
hook.uninstall()
found["undone"] = patched()
for length in (1, 2, 3):
    for names in itertools.product(routes, repeat=length):
        hook.uninstall()
        for name in names:
            routes[name]()
        found[" > ".join(names)] = patched()

from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
seen = []

def theirs(original, self, server_args):
    seen.append("theirs")
    return original(self, server_args)

HookRegistry.register(
    "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker", theirs, HookType.AROUND
)
stock()
found["with another plugin's hook"] = patched()
from argparse import Namespace
from sglang_specv2 import worker_choice
args = Namespace(speculative_algorithm="EAGLE3", enable_multi_layer_eagle=False)
worker = SpeculativeAlgorithm.EAGLE3.create_worker(args)
found["worker"] = [worker.__name__, len(seen)]
found["status"] = plugin.status().problems
print(json.dumps(found))
"""
)

HOOK_FIRST = (
    COMMON
    + """
import sglang_specv2.hook
before = sorted(name for name in ("sglang", "torch") if name in sys.modules)
import sglang.srt.server_args
found = {"imported by the hook": before, "hook alone": patched()}
from sglang.srt.plugins import load_plugins
load_plugins()
load_plugins()
found["then the entry point"] = patched()
print(json.dumps(found))
"""
)


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return stock_sglang.entry_points(tmp_path_factory.mktemp("plugin"))


@pytest.fixture(scope="module")
def orders(plugin, tmp_path_factory):
    env = stock_sglang.environment(plugin)
    return stock_sglang.answer(ORDERS, env, cwd=tmp_path_factory.mktemp("run"))


ROUTES = ("entry point", "import", "watch")
COMBINATIONS = [
    " > ".join(names) for length in (1, 2, 3) for names in product(ROUTES, repeat=length)
]


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_order_patches_once(orders, combination):
    assert orders[combination] == [1, 1, 1]


def test_importing_sglang_is_enough(orders):
    assert orders["at first"] == [1, 1, 1]


def test_undone(orders):
    assert orders["undone"] == [0, 0, 0]


def test_another_plugin_s_hook_wraps_ours(orders):
    assert orders["with another plugin's hook"] == [1, 1, 2]
    assert orders["worker"] == ["SpecV2Worker", 1]
    assert orders["status"] == []


def test_hook_before_sglang(plugin, tmp_path):
    found = stock_sglang.answer(HOOK_FIRST, stock_sglang.environment(plugin), cwd=tmp_path)
    assert found["imported by the hook"] == []
    assert found["hook alone"] == [1, 1, 1]
    assert found["then the entry point"] == [1, 1, 1]


def test_command_that_loads_no_plugins(tmp_path):
    env = stock_sglang.environment()
    done = stock_sglang.run(
        [
            sys.executable,
            "-c",
            "import sglang_specv2.hook, sglang.srt.server_args as s;"
            "print('specv2_options' in s.ServerArgs.__dataclass_fields__)",
        ],
        env,
        tmp_path,
    )
    assert done.stdout.strip() == "True", done.stderr
