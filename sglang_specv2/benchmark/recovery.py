"""Acceptance after a period without speculation, from outside, alike for every worker.

Fillers push the batch over the size at which speculation stops. Once all of them are answered
from, the requests that matter join, so that they live without speculation from their first token.
The fillers end, the batch falls, and speculation starts again: tokens that arrive together in one
chunk are what one step gave, so each later chunk of a request that matters is one accept length.
See :mod:`sglang_specv2.benchmark.alignment`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from sglang_specv2.benchmark import client
from sglang_specv2.benchmark.alignment import JOIN_TOKENS, WINDOW_STEPS, align
from sglang_specv2.benchmark.arms import DRAFT_TOKENS
from sglang_specv2.benchmark.records import RequestRecord
from sglang_specv2.benchmark.server import ArmServer


@dataclass(frozen=True)
class Protocol:
    """How one batch of the measure runs.

    Attributes:
        matter: requests whose acceptance is looked at; they stay within the threshold.
        fillers: requests that take the batch over it.
        plain_tokens: tokens that those that matter decode before speculation returns, about.
        sampling: parameters of every request.
    """

    matter: int
    fillers: int
    plain_tokens: int
    sampling: dict[str, Any]


def measure_recovery(
    server: ArmServer,
    protocol: Protocol,
    prompts: Sequence[Sequence[int]],
    *,
    timeout_s: float,
) -> dict[str, Any]:
    """One batch, as a line of ``recovery.jsonl``, see :func:`alignment.align`.

    Args:
        prompts: of the requests that matter, then of the fillers.

    Raises:
        ArmError: the server ended, hangs, or failed a request.
    """

    async def within_time() -> tuple[list[RequestRecord], list[RequestRecord]]:
        return await asyncio.wait_for(_drive(server, protocol, prompts, timeout_s), timeout_s)

    try:
        fillers, matter = asyncio.run(within_time())
    except (TimeoutError, asyncio.TimeoutError):
        server.check_alive()
        raise server.failed(f"hangs: no end after {timeout_s:.0f} s") from None
    errors = [record.error for record in (*fillers, *matter) if record.error]
    if errors:
        raise server.failed_requests(errors)
    return {
        "asked_plain_tokens": protocol.plain_tokens,
        **align(fillers, matter, protocol.plain_tokens),
    }


async def _drive(
    server: ArmServer, protocol: Protocol, prompts: Sequence[Sequence[int]], timeout_s: float
) -> tuple[list[RequestRecord], list[RequestRecord]]:
    async with client.session(timeout_s) as http:
        fillers = _send(
            http,
            server.url,
            prompts[protocol.matter : protocol.matter + protocol.fillers],
            protocol.plain_tokens + JOIN_TOKENS,
            protocol.sampling,
        )
        while any(not record.tokens and not record.error for record, _ in fillers):
            await asyncio.sleep(0.001)
        matter = _send(
            http,
            server.url,
            prompts[: protocol.matter],
            protocol.plain_tokens + JOIN_TOKENS + WINDOW_STEPS * DRAFT_TOKENS,
            protocol.sampling,
        )
        await asyncio.gather(*[task for _, task in (*fillers, *matter)])
    return [record for record, _ in fillers], [record for record, _ in matter]


def _send(
    http: aiohttp.ClientSession,
    url: str,
    prompts: Sequence[Sequence[int]],
    output_tokens: int,
    sampling: dict[str, Any],
) -> list[tuple[RequestRecord, asyncio.Task[None]]]:
    sent = []
    for ids in prompts:
        record = RequestRecord(start_s=0.0)
        request = client.body(ids, output_tokens, sampling)
        sent.append((record, asyncio.create_task(client.stream(http, url, request, record))))
    return sent
