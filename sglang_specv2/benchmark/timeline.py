"""A ramp, a square wave, joins and leaves: batch size, mode and throughput as time goes by."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from sglang_specv2.benchmark import client
from sglang_specv2.benchmark.driver import Clients
from sglang_specv2.benchmark.load import Phase
from sglang_specv2.benchmark.records import RequestRecord
from sglang_specv2.benchmark.server import ArmServer
from sglang_specv2.benchmark.server_state import sampling


def measure_timeline(
    server: ArmServer,
    phases: Sequence[Phase],
    requests: Sequence[dict[str, Any]],
    *,
    timeout_s: float,
    bin_s: float,
) -> list[dict[str, Any]]:
    """Lines of ``timeline.jsonl``, one for each ``bin_s`` of time.

    ``phase`` counts from 0, ``clients`` are those that were connected, ``requests`` those that were
    being answered on average, ``tokens_s`` what arrived; ``batch_size`` and ``mode`` are our
    worker's own words, and null for another worker. Clients that leave hang up in the middle of an
    answer.

    Raises:
        ArmError: the server ended, hangs, or failed a request.
    """
    with sampling(server.info, bin_s) as samples:
        began, ended, records, joined = asyncio.run(_drive(server, phases, requests, timeout_s))
    if samples.error is not None:
        raise samples.error
    if not _arrived(records, (began + ended) / 2, ended):
        raise server.failed("hangs: no token arrived in the second half of the time line")
    lines = []
    for number in range(int((ended - began) / bin_s)):
        start, end = began + number * bin_s, began + (number + 1) * bin_s
        states = [state for at, state in samples.states if start <= at < end and state is not None]
        state = states[-1] if states else {}
        phase = sum(at <= (start + end) / 2 for at, _ in joined) - 1
        lines.append(
            {
                "at_s": (number + 0.5) * bin_s,
                "phase": phase,
                "clients": joined[phase][1],
                "requests": _in_flight(records, start, end),
                "tokens_s": _arrived(records, start, end) / bin_s,
                "batch_size": state.get("batch_size"),
                "mode": state.get("mode"),
                "switches": sum(state["switches"].values()) if state else None,
            }
        )
    return lines


async def _drive(
    server: ArmServer, phases: Sequence[Phase], requests: Sequence[dict[str, Any]], timeout_s: float
) -> tuple[float, float, list[RequestRecord], list[tuple[float, int]]]:
    async with client.session(timeout_s) as http:
        clients = Clients(http, server.url, requests)
        began = time.perf_counter()
        joined: list[tuple[float, int]] = []
        for phase in phases:
            await clients.resize(phase.clients)
            joined.append((time.perf_counter(), phase.clients))
            await asyncio.sleep(phase.seconds)
            if clients.error is not None:
                await clients.resize(0)
                raise server.failed_requests([clients.error])
        ended = time.perf_counter()
        await clients.resize(0)
    return began, ended, clients.records, joined


def _in_flight(records: Sequence[RequestRecord], start: float, end: float) -> float:
    """Requests being answered, as a mean over the time from ``start`` to ``end``."""
    overlap = sum(max(0.0, min(r.end_s, end) - max(r.start_s, start)) for r in records)
    return overlap / (end - start)


def _arrived(records: Sequence[RequestRecord], start: float, end: float) -> int:
    return sum(
        tokens
        for record in records
        for at, tokens in zip(record.token_times_s, record.chunk_tokens, strict=True)
        if start <= at < end
    )
