"""Fixtures for tests that drive a real server."""

import itertools
import os
import random
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Before their first import, so that their assertions tell values too.
pytest.register_assert_rewrite(
    *("long_off_period", "soak_load", "sync_precision", "worker_scenarios")
)

import random_pair as random_pair_module
from known_texts import KnownText, known_texts
from live_server import LiveServer
from probed_server import ProbedServer
from worker_scenarios import SERVED_ALIKE, SWITCHING_FLAGS, random_runs

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


@pytest.fixture(scope="session")
def texts(trained_pair: tuple[Path, Path]) -> tuple[KnownText, ...]:
    """Prompts of the bundled pair whose greedy continuation is known."""
    return known_texts(*trained_pair)


@pytest.fixture(scope="module")
def start_probed(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[Callable[..., ProbedServer]]:
    """Starts servers of the bundled pair that live until the module's last test."""
    with Servers(tmp_path_factory.mktemp("probed"), *trained_pair) as servers:
        yield servers.start


class Servers:
    """Servers with the probe in them, ended together."""

    def __init__(self, folder: Path, target: Path, draft: Path) -> None:
        self._folder, self._target, self._draft = folder, target, draft
        self.started: list[ProbedServer] = []
        self._numbers = itertools.count()

    def start(self, *arguments: str, **options: Any) -> ProbedServer:
        log = self._folder / f"server-{next(self._numbers)}.log"
        small = ("--max-total-tokens", "16384")  # so that SGLang's checks of the pool are quick
        self.started.append(
            ProbedServer(self._target, log, self._draft, arguments=(*small, *arguments), **options)
        )
        return self.started[-1]

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        for server in self.started:
            server.stop()


@pytest.fixture(scope="session")
def _shared(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[Servers]:
    with Servers(tmp_path_factory.mktemp("shared"), *trained_pair) as servers:
        yield servers


@pytest.fixture(scope="module")
def switching_server(_shared: Servers) -> ProbedServer:
    """One server for all tests that only ask and look: a start costs more than most of them."""
    if not _shared.started or not _shared.started[-1].is_alive():
        _shared.start(*SWITCHING_FLAGS)
    _shared.started[-1].schedule("")
    return _shared.started[-1]


@pytest.fixture(scope="session")
def stock_server(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[LiveServer]:
    """SGLang without speculation and without this package: what the others are compared with."""
    log = tmp_path_factory.mktemp("stock") / "server.log"
    server = LiveServer(trained_pair[0], log, arguments=SERVED_ALIKE, env={"SGLANG_SPECV2": "0"})
    yield server
    server.stop()


@pytest.fixture
def server(switching_server: ProbedServer) -> Iterator[ProbedServer]:
    """The shared server; when a test is through with it, every slot is free."""
    yield switching_server
    switching_server.plant("")
    switching_server.wait_until_idle()
    switching_server.schedule("")


SETTINGS = {
    "always on": "1s",
    "always off": "1p",
    "every step": "1s 1p",
    "every 3rd step": "3s 3p",
    "every 7th step": "7s 7p",
    "random steps": "",
}


@pytest.fixture(params=SETTINGS)
def runs(request: pytest.FixtureRequest) -> str:
    """The modes of the decode steps, as :meth:`ProbedServer.schedule` takes them.

    Random ones come from a seed that a failing test shows; ``SPECV2_SEED`` sets it.
    """
    if request.param == "random steps":
        seed = int(os.environ.get("SPECV2_SEED") or random.randrange(10**6))
        print(f"random steps: SPECV2_SEED={seed}")
        return random_runs(seed)
    return SETTINGS[request.param]


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
