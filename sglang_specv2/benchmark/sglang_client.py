"""SGLang's own ``bench_serving`` as the client, for the load that it can make.

It is called in this process with our prompts; each request's outcome is kept as it returns it, so
that both clients are summed up by the same code.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.records import RequestRecord

_BACKEND = "sglang"


class NotAvailableError(Exception):
    """SGLang's client cannot be imported here; the message says why."""


class SglangClient:
    """``sglang.benchmark.serving``, imported.

    Args:
        log: file that takes what it prints.

    Raises:
        NotAvailableError: it asks for a package that is not installed.
    """

    def __init__(self, log: Path) -> None:
        try:
            self._serving = importlib.import_module("sglang.benchmark.serving")
            self._row = importlib.import_module("sglang.benchmark.datasets").DatasetRow
        except ImportError as error:
            raise NotAvailableError(f"sglang.benchmark.serving: {error}") from error
        self._log = log

    async def run(
        self,
        url: str,
        load: Load,
        requests: Sequence[dict[str, Any]],
        *,
        seed: int,
    ) -> list[RequestRecord]:
        """Sends every request (see :func:`sglang_specv2.benchmark.client.body`)."""
        import numpy

        numpy.random.seed(seed)  # its Poisson arrivals
        random.seed(seed)
        self._serving.set_global_args(_arguments(requests[0]["sampling_params"]))
        rows = [
            self._row(
                prompt=request["input_ids"],
                prompt_len=len(request["input_ids"]),
                output_len=request["sampling_params"]["max_new_tokens"],
                extra_request_body={"sampling_params": request["sampling_params"]},
            )
            for request in requests
        ]
        closed = load.kind == "closed"
        with (
            self._keeping_outputs() as outputs,
            self._log.open("a", encoding="utf-8") as log,
            contextlib.redirect_stdout(log),
        ):
            await self._serving.benchmark(
                backend=_BACKEND,
                api_url=f"{url}/generate",
                base_url=url,
                model_id="default",
                tokenizer=_NoTokens(),
                input_requests=rows,
                request_rate=float("inf") if closed else load.level,
                max_concurrency=int(load.level) if closed else None,
                disable_tqdm=True,
                lora_names=[],
                lora_request_distribution=None,
                lora_zipf_alpha=None,
                extra_request_body={},
                profile=False,
                warmup_requests=0,
            )
        return [_record(output) for output in outputs]

    @contextlib.contextmanager
    def _keeping_outputs(self) -> Iterator[list[Any]]:
        functions = self._serving.ASYNC_REQUEST_FUNCS
        original = functions[_BACKEND]
        outputs: list[Any] = []

        async def request(request_func_input: Any, pbar: Any = None) -> Any:
            output = await original(request_func_input=request_func_input, pbar=pbar)
            outputs.append(output)
            return output

        functions[_BACKEND] = request
        try:
            yield outputs
        finally:
            functions[_BACKEND] = original


class _NoTokens:
    """In place of a tokenizer, which it would only count its text again with."""

    def encode(self, text: str, **options: Any) -> list[int]:
        return []


def _arguments(sampling: dict[str, Any]) -> argparse.Namespace:
    """What its functions read from its command line."""
    return argparse.Namespace(
        backend=_BACKEND,
        dataset_name="sglang-specv2",
        temperature=sampling["temperature"],
        top_p=sampling.get("top_p", 1.0),
        disable_ignore_eos=not sampling["ignore_eos"],
        disable_stream=False,
        return_logprob=False,
        return_routed_experts=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        header=None,
        cache_report=False,
        plot_throughput=False,
        warmup_requests=0,
        output_file=str(Path("/dev/null")),
        output_details=False,
        tag=None,
        sharegpt_output_len=None,
        random_input_len=None,
        random_output_len=None,
        random_range_ratio=None,
    )


def _record(output: Any) -> RequestRecord:
    """Our record of its ``RequestFuncOutput``: a chunk for each token, as it keeps them."""
    if not output.success:
        return RequestRecord(start_s=output.start_time, error=output.error[-500:] or "failed")
    times = [output.start_time + output.ttft]
    for wait in output.itl:
        times.append(times[-1] + wait)
    # What came with the first chunk has no wait of its own.
    first = output.output_len - len(output.itl)
    return RequestRecord(
        start_s=output.start_time,
        token_times_s=times,
        chunk_tokens=[first, *[1] * len(output.itl)],
        accept_length=output.spec_accept_length or None,
    )
