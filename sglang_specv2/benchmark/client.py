"""Our own client: one streamed request to ``/generate``, each chunk timed.

aiohttp and orjson are SGLang's own requirements.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import orjson

from sglang_specv2.benchmark.records import RequestRecord

_READ_BUFFER_BYTES = 4 * 1024 * 1024


def session(timeout_s: float) -> aiohttp.ClientSession:
    """A session without a limit on connections; ``timeout_s`` bounds the wait for each chunk."""
    return aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=timeout_s),
        connector=aiohttp.TCPConnector(limit=0),
        read_bufsize=_READ_BUFFER_BYTES,
    )


def body(ids: Sequence[int], output_tokens: int, sampling: dict[str, Any]) -> dict[str, Any]:
    """A streaming request; ``sampling`` wins over greedy and past EOS."""
    parameters = {"temperature": 0.0, "max_new_tokens": output_tokens, "ignore_eos": True}
    return {"input_ids": list(ids), "sampling_params": parameters | sampling, "stream": True}


async def stream(
    http: aiohttp.ClientSession, url: str, request: dict[str, Any], record: RequestRecord
) -> None:
    """Sends one request and fills ``record`` while chunks arrive.

    A failure is left in ``record.error``. A cancelled task hangs up, which aborts the request.
    """
    tokens = 0
    record.start_s = time.perf_counter()
    try:
        async with http.post(f"{url}/generate", json=request) as reply:
            if reply.status != 200:
                record.error = f"status {reply.status}: {(await reply.text())[:500]}"
                return
            async for line in reply.content:
                if not line.startswith(b"data: {"):
                    continue
                now = time.perf_counter()
                chunk = orjson.loads(line[len(b"data: ") :])
                if "error" in chunk:
                    record.error = str(chunk["error"])[:500]
                    return
                meta = chunk["meta_info"]
                new = meta["completion_tokens"] - tokens
                if new > 0:
                    tokens += new
                    record.token_times_s.append(now)
                    record.chunk_tokens.append(new)
                record.accept_length = meta.get("spec_accept_length", record.accept_length)
                record.verifies = meta.get("spec_verify_ct", record.verifies)
                record.accepted_histogram = meta.get("spec_correct_drafts_histogram")
                reason = meta.get("finish_reason")
                if isinstance(reason, dict) and reason.get("type") == "abort":
                    record.error = f"aborted: {reason.get('message')}"
    except asyncio.CancelledError:
        record.left = True
        raise
    except (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError) as error:
        record.error = f"{type(error).__name__}: {error}"
