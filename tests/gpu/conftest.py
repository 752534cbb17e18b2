"""Servers on a GPU, in float32 so that every token can be compared exactly."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from known_texts import KnownText, known_texts
from probed_server import ProbedServer

FP32 = {"SPECV2_PROBE_FP32": "1", "TRITON_F32_DEFAULT": "ieee"}
FLAGS = (
    *("--attention-backend", os.environ.get("SPECV2_TEST_ATTENTION_BACKEND", "triton")),
    *("--dtype", "float32"),
    *("--mem-fraction-static", "0.85"),
    *("--max-total-tokens", "40000"),
    *("--max-running-requests", "32"),
    *("--cuda-graph-max-bs-decode", "8"),
    *("--cuda-graph-backend-prefill", "disabled"),
)
"""Batches of more than 8 are above the largest graph."""


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

    def start(*arguments: str, speculate: bool = True, **env: str) -> ProbedServer:
        log = folder / f"server-{len(servers)}.log"
        target, draft = trained_pair
        servers.append(
            ProbedServer(
                target,
                log,
                draft if speculate else None,
                arguments=(*FLAGS, *arguments),
                env=FP32 | env,
                device="cuda",
                start_timeout_s=300,
            )
        )
        return servers[-1]

    yield start
    for server in servers:
        server.stop()
