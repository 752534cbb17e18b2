"""A plugin for pytest: what every check is given."""

import pytest
from fakes import Calls, FakeRunner, FakeSync
from sglang.srt.runtime_context import get_parallel


@pytest.fixture(autouse=True)
def _one_rank():
    with get_parallel().override(moe_ep_size=1):
        yield


@pytest.fixture
def calls() -> Calls:
    return Calls()


@pytest.fixture
def runner(calls: Calls) -> FakeRunner:
    return FakeRunner(calls)


@pytest.fixture
def sync(calls: Calls) -> FakeSync:
    return FakeSync(calls)
