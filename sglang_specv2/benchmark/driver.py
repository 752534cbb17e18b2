"""Load from our own client: closed loop, Poisson arrivals, and a number of clients that changes."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator, Sequence
from typing import Any

import aiohttp

from sglang_specv2.benchmark import client
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.records import RequestRecord


async def run(
    url: str,
    load: Load,
    requests: Sequence[dict[str, Any]],
    *,
    timeout_s: float,
    seed: int,
) -> list[RequestRecord]:
    """Sends every request and returns when all are answered or have failed.

    Args:
        timeout_s: of each wait for a chunk.
        seed: of the arrivals.
    """
    async with client.session(timeout_s) as http:
        if load.kind == "closed":
            return await _closed(http, url, int(load.level), requests)
        return await _poisson(http, url, load.level, requests, random.Random(seed))


async def _closed(
    http: aiohttp.ClientSession, url: str, clients: int, requests: Sequence[dict[str, Any]]
) -> list[RequestRecord]:
    waiting = iter(requests)
    records: list[RequestRecord] = []

    async def one_client() -> None:
        for request in waiting:
            record = RequestRecord(start_s=0.0)
            records.append(record)
            await client.stream(http, url, request, record)

    await asyncio.gather(*[one_client() for _ in range(clients)])
    return records


async def _poisson(
    http: aiohttp.ClientSession,
    url: str,
    rate: float,
    requests: Sequence[dict[str, Any]],
    rng: random.Random,
) -> list[RequestRecord]:
    records: list[RequestRecord] = []
    tasks: list[asyncio.Task[None]] = []
    for request in requests:
        records.append(RequestRecord(start_s=0.0))
        tasks.append(asyncio.create_task(client.stream(http, url, request, records[-1])))
        await asyncio.sleep(rng.expovariate(rate))
    await asyncio.gather(*tasks)
    return records


class Clients:
    """A number of clients, each sending request after request, changed while they run.

    Clients that are too many leave at once: they hang up, which aborts their requests.

    Args:
        requests: sent in turn, by all clients together, again from the start when all were sent.

    Attributes:
        records: of every request so far.
    """

    def __init__(
        self, http: aiohttp.ClientSession, url: str, requests: Sequence[dict[str, Any]]
    ) -> None:
        self.records: list[RequestRecord] = []
        self._http, self._url = http, url
        self._requests: Iterator[dict[str, Any]] = itertools.cycle(requests)
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def count(self) -> int:
        return len(self._tasks)

    @property
    def error(self) -> str | None:
        """The first failure of a request."""
        return next((record.error for record in self.records if record.error), None)

    async def resize(self, clients: int) -> None:
        """Joins or leaves until there are ``clients``."""
        leaving, self._tasks = self._tasks[clients:], self._tasks[:clients]
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        while len(self._tasks) < clients:
            self._tasks.append(asyncio.create_task(self._one_after_the_other()))

    async def _one_after_the_other(self) -> None:
        for request in self._requests:
            record = RequestRecord(start_s=0.0)
            self.records.append(record)
            await client.stream(self._http, self._url, request, record)
            if record.error:
                return
