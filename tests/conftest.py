"""Fixtures for tests that drive a real server."""

import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import random_pair as random_pair_module
from live_server import LiveServer

from sglang_specv2 import cpu

# A busy machine is no reason to fail.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _the_environment_is_put_back() -> Iterator[None]:
    """What a test leaves in it would reach the servers of others."""
    before = dict(os.environ)
    yield
    if os.environ != before:
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture(scope="session")
def random_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders of a target and an EAGLE-3 draft with random weights; they have no tokenizer."""
    return random_pair_module.make(tmp_path_factory.mktemp("random-pair"))


@pytest.fixture(scope="session")
def trained_pair() -> tuple[Path, Path]:
    """Folders of the bundled target and draft."""
    return cpu.bundled_pair()


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LiveServer]]:
    """Starts servers that live until the module's last test; arguments are those of LiveServer."""
    folder = tmp_path_factory.mktemp("server-logs")
    servers: list[LiveServer] = []

    def start(model: Path, draft: Path | None = None, **options: Any) -> LiveServer:
        log = folder / f"server-{len(servers)}.log"
        servers.append(LiveServer(model, log, draft, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the logs of the servers that it used."""
    report = yield
    if report.failed:
        for name, value in getattr(item, "funcargs", {}).items():
            if isinstance(value, LiveServer):
                report.sections.append((f"log of {name}", value.log_tail()))
    return report
