"""Servers on a GPU, in float32 so that every token can be compared exactly."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from probed_server import ProbedServer
from worker_scenarios import SERVED_ALIKE, SWITCHING_FLAGS

# Its themes are run here on a GPU.
sys.path.append(str(Path(__file__).parents[1] / "behaviour"))

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


@pytest.fixture(scope="module")
def start_probed(
    tmp_path_factory: pytest.TempPathFactory, trained_pair: tuple[Path, Path]
) -> Iterator[Callable[..., ProbedServer]]:
    """Starts servers of the bundled pair that live until the module's last test.

    Variables are given in ``env`` or as keywords.
    """
    folder = tmp_path_factory.mktemp("probed")
    servers: list[ProbedServer] = []

    def start(
        *arguments: str,
        speculate: bool = True,
        env: Mapping[str, str] | None = None,
        **variables: str,
    ) -> ProbedServer:
        log = folder / f"server-{len(list(folder.glob('*.log')))}.log"
        target, draft = trained_pair
        servers.append(
            ProbedServer(
                target,
                log,
                draft if speculate else None,
                arguments=(*FLAGS, *arguments),
                env={**FP32, **(env or {}), **variables},
                device="cuda",
                start_timeout_s=300,
            )
        )
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def switching_server(start_probed: Callable[..., ProbedServer]) -> ProbedServer:
    """One server for all tests of a module that only ask and look."""
    return start_probed(*SWITCHING_FLAGS)


@pytest.fixture(scope="module")
def stock_server(start_probed: Callable[..., ProbedServer]) -> ProbedServer:
    """SGLang without speculation and without this package: what the others are compared with."""
    return start_probed(*SERVED_ALIKE, speculate=False, SGLANG_SPECV2="0")
