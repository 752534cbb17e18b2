"""Servers with the probe in them, and the texts that they are asked for."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from known_texts import KnownText, known_texts
from probed_server import ProbedServer


@pytest.fixture(scope="session")
def texts(trained_pair: tuple[Path, Path]) -> tuple[KnownText, ...]:
    return known_texts(*trained_pair)


@pytest.fixture(scope="module")
def start_probed(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[Callable[..., ProbedServer]]:
    """Starts servers of the bundled pair that live until the module's last test."""
    folder = tmp_path_factory.mktemp("probed")
    servers: list[ProbedServer] = []

    def start(*arguments: str, **options: Any) -> ProbedServer:
        log = folder / f"server-{len(servers)}.log"
        target, draft = trained_pair
        servers.append(ProbedServer(target, log, draft, arguments=arguments, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
