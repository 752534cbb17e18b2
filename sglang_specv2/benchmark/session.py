"""One call of ``sglang-specv2 bench``: what it opens, measures, writes and says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from sglang_specv2 import gpus
from sglang_specv2.benchmark import display, pairs, provenance, report
from sglang_specv2.benchmark.measure import Instruments
from sglang_specv2.benchmark.pairs import Pair
from sglang_specv2.benchmark.results import Results
from sglang_specv2.benchmark.runner import Runner
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.sglang_client import NotAvailableError, SglangClient
from sglang_specv2.benchmark.stations import RECOVERY_TOKENS, stations
from sglang_specv2.benchmark.tables import Comparison
from sglang_specv2.benchmark.telemetry import GpuMeter
from sglang_specv2.benchmark.workloads import WORKLOADS, Prompts
from sglang_specv2.errors import ConfigError

_RECOVERY_WORKLOAD = "chat"
_SAMPLE = 8
"""Prompts that are looked at for the longest one."""


class Session:
    """Measures into a result folder.

    Args:
        pair: that the speed arms serve. Recovery is measured on it too unless its weights are
            dummies; then on the bundled pair.
        folder: of the results, made or continued.
        note: words for the report.
        begun_s: when the time limit began, on the monotonic clock.
    """

    def __init__(
        self, settings: Settings, pair: Pair, folder: Path, *, note: str | None, begun_s: float
    ) -> None:
        self._settings, self._pair, self._note = settings, pair, note
        self._recovery_pair = pairs.bundled() if pair.dummy else pair
        self._results = Results(folder)
        self._begun_s = begun_s

    def run(self) -> int:
        """Measures and reports; see :func:`sglang_specv2.cli.bench.run` for what it returns."""
        settings = self._settings
        prompts = Prompts(
            WORKLOADS[settings.workload],
            self._pair,
            settings.output_tokens,
            settings.prompt_tokens,
        )
        recovery_prompts = self._recovery_prompts()
        samples = [
            ids for made in (prompts, recovery_prompts) if made for ids in made.make(_SAMPLE, 0)
        ]
        self._results.logs.mkdir(parents=True, exist_ok=True)
        servers = stations(
            settings,
            self._pair,
            self._recovery_pair,
            prompt_tokens=max(map(len, samples)),
            results=self._results,
        )
        client, reason = self._client()
        try:
            meter = None if settings.cpu else GpuMeter(_first_visible_gpu())
        except gpus.NoGpuError as error:
            raise ConfigError(
                f"no GPU to measure on: {error}; --cpu tries the machinery"
            ) from error
        instruments = Instruments(client, meter, settings.round_timeout_s, settings.look_period_s)
        self._results.open(
            provenance.collect(
                settings,
                self._pair,
                self._recovery_pair,
                meter,
                instruments.client_name,
                reason,
                self._note,
            )
        )
        shown = display.make([s.name for s in servers if s.speed], settings.loads)
        bench = Runner(
            settings,
            servers,
            prompts,
            recovery_prompts,
            self._results,
            instruments,
            shown,
            self._begun_s,
        )
        interrupted = False
        try:
            with shown.shown(bench.count()):
                bench.run()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if meter is not None:
                meter.close()
        failed = write_report(self._results)
        print(
            f"{'Interrupted; what was measured is kept. ' if interrupted else ''}"
            f"Report: {self._results.folder / 'report.md'}",
            flush=True,
        )
        if interrupted:
            return 130
        return 1 if failed else 0

    def _recovery_prompts(self) -> Prompts | None:
        lengths = self._settings.recovery_plain_tokens
        if not lengths:
            return None
        output_tokens = max(lengths) + RECOVERY_TOKENS
        return Prompts(WORKLOADS[_RECOVERY_WORKLOAD], self._recovery_pair, output_tokens)

    def _client(self) -> tuple[SglangClient | None, str]:
        """SGLang's client, or None for ours, and why."""
        asked = self._settings.client
        if asked == "own":
            return None, "asked for"
        try:
            client = SglangClient(self._results.logs / "bench_serving.log")
        except NotAvailableError as error:
            if asked == "bench_serving":
                raise ConfigError(f"--client bench_serving: {error}") from error
            return None, f"not available: {error}"
        return client, "SGLang's own" if asked == "auto" else "asked for"


def _first_visible_gpu() -> str:
    """The one that SGLang serves on."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0] or "0"


def write_report(results: Results) -> Sequence[str]:
    """Writes report and figures of a result folder; returns the arms that failed."""
    comparison = Comparison(results)
    try:
        from sglang_specv2.benchmark import figures
    except ImportError as error:
        print(
            f"No figures: {error}. `sglang-specv2 plot {results.folder}` draws them where "
            'matplotlib is (pip install "sglang-specv2[bench]")',
            flush=True,
        )
        drawn: dict[str, bytes] = {}
    else:
        drawn = figures.draw_all([comparison])
    for name, content in drawn.items():
        results.write(name, content)
    pictures = [name.removesuffix(".svg") for name in drawn if name.endswith(".svg")]
    results.write("report.md", report.write(comparison, pictures))
    return list(comparison.failed)
