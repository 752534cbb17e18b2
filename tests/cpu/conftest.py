"""Servers with the probe in them, and the texts that they are asked for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from known_texts import KnownText, known_texts
from probed_server import ProbedServer
from worker_scenarios import THRESHOLD_FLAGS


@pytest.fixture(scope="session")
def texts(trained_pair: tuple[Path, Path]) -> tuple[KnownText, ...]:
    return known_texts(*trained_pair)


def starter(
    folder: Path, pair: tuple[Path, Path]
) -> Iterator[tuple[Callable[..., ProbedServer], list[ProbedServer]]]:
    servers: list[ProbedServer] = []

    def start(*arguments: str, **options: Any) -> ProbedServer:
        log = folder / f"server-{len(servers)}.log"
        target, draft = pair
        small = ("--max-total-tokens", "16384")  # so that SGLang's checks of the pool are quick
        servers.append(ProbedServer(target, log, draft, arguments=(*small, *arguments), **options))
        return servers[-1]

    yield start, servers
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def start_probed(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[Callable[..., ProbedServer]]:
    """Starts servers of the bundled pair that live until the module's last test."""
    for start, _ in starter(tmp_path_factory.mktemp("probed"), trained_pair):
        yield start


@pytest.fixture(scope="session")
def _shared(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[tuple[Callable[..., ProbedServer], list[ProbedServer]]]:
    yield from starter(tmp_path_factory.mktemp("shared"), trained_pair)


@pytest.fixture(scope="module")
def switching_server(_shared: Any) -> ProbedServer:
    """One server for all tests that only ask and look: a start costs more than most of them."""
    start, servers = _shared
    if not servers or not servers[-1].is_alive():
        start(
            *THRESHOLD_FLAGS,
            *("--chunked-prefill-size", "64"),
            "--constrained-json-disable-any-whitespace",
            *("--enable-metrics", "--decode-log-interval", "1"),
        )
    servers[-1].schedule("")
    return servers[-1]
