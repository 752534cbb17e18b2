"""One round on one arm: load between two readings of the server and of the GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sglang_specv2.benchmark import client, driver
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.records import RequestRecord, summarize
from sglang_specv2.benchmark.server import ArmServer
from sglang_specv2.benchmark.server_state import difference, sampling, worker_state
from sglang_specv2.benchmark.sglang_client import SglangClient
from sglang_specv2.benchmark.telemetry import GpuMeter, reading

LOOK_PERIOD_S = 1.0
"""How often a server is asked for its mode; the same for every arm, since asking costs a little."""


@dataclass(frozen=True)
class Instruments:
    """What rounds are driven and read with.

    Attributes:
        sglang_client: None where our own client drives.
        meter: None without a GPU.
        timeout_s: after which a round that has not ended is given up.
        look_period_s: see :data:`LOOK_PERIOD_S`.
    """

    sglang_client: SglangClient | None
    meter: GpuMeter | None
    timeout_s: float
    look_period_s: float = LOOK_PERIOD_S

    @property
    def client_name(self) -> str:
        return "own" if self.sglang_client is None else "bench_serving"


def warm_up(server: ArmServer, prompts: Sequence[Sequence[int]], timeout_s: float) -> None:
    """Sends every prompt at once for a few tokens; what comes of it is not kept.

    Raises:
        ArmError: a request failed.
    """
    requests = [client.body(ids, 16, {}) for ids in prompts]
    records = _drive(server, Load("closed", len(requests)), requests, timeout_s, None, seed=0)
    _require_answers(server, records)


def measure_round(
    server: ArmServer,
    arrivals: Load,
    requests: Sequence[dict[str, Any]],
    instruments: Instruments,
    *,
    seed: int,
) -> dict[str, Any]:
    """The figures of a round, as a line of ``rounds.jsonl``.

    Raises:
        ArmError: the server ended, hangs, or failed a request.
    """
    before = worker_state(server.info())
    with (
        sampling(server.info, instruments.look_period_s) as samples,
        reading(instruments.meter) as readings,
    ):
        records = _drive(
            server,
            arrivals,
            requests,
            instruments.timeout_s,
            instruments.sglang_client,
            seed=seed,
        )
    _require_answers(server, records)
    after = worker_state(server.info())
    line = summarize(records) | asdict(readings) | {"client": instruments.client_name}
    if readings.energy_j is not None:
        line["joules_per_token"] = readings.energy_j / line["output_tokens"]
    if before is not None and after is not None:
        counted = difference(before, after)
        line |= counted | {"time_share": samples.time_share()}
        if counted["worker_accept_length"] is not None:
            line["accept_length"] = counted["worker_accept_length"]
    return line


def _drive(
    server: ArmServer,
    arrivals: Load,
    requests: Sequence[dict[str, Any]],
    timeout_s: float,
    sglang_client: SglangClient | None,
    *,
    seed: int,
) -> list[RequestRecord]:
    if sglang_client is None:
        work = driver.run(server.url, arrivals, requests, timeout_s=timeout_s, seed=seed)
    else:
        work = sglang_client.run(server.url, arrivals, requests, seed=seed)

    async def within_time() -> list[RequestRecord]:
        return await asyncio.wait_for(work, timeout_s)

    try:
        return asyncio.run(within_time())
    except (TimeoutError, asyncio.TimeoutError):
        server.check_alive()
        raise server.failed(
            f"hangs: {arrivals.label} with {len(requests)} requests had no end after "
            f"{timeout_s:.0f} s"
        ) from None


def _require_answers(server: ArmServer, records: Sequence[RequestRecord]) -> None:
    errors = [record.error for record in records if record.error]
    if errors:
        raise server.failed_requests(errors)
    if not records or any(record.tokens == 0 for record in records):
        raise server.failed("a request was answered without tokens")
