"""The Markdown report of a result folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.load import TIMELINES
from sglang_specv2.benchmark.report import servers, speed
from sglang_specv2.benchmark.tables import Comparison


def write(comparison: Comparison, drawn: Sequence[str]) -> str:
    """The report.

    Args:
        drawn: names of the pictures beside it, without suffix.
    """
    return "\n".join(_lines(comparison, drawn)).rstrip() + "\n"


def _lines(comparison: Comparison, drawn: Sequence[str]) -> Iterator[str]:
    yield "# Benchmark"
    yield ""
    yield f"{labels.setup(comparison.provenance)}."
    yield ""
    for sentence in labels.explained_caveats(comparison.provenance):
        yield f"**{sentence}**"
        yield ""
    yield _method(comparison)
    yield ""
    if comparison.loads or comparison.settings["arms"]:
        yield from speed.rates(comparison, drawn)
        yield from speed.ratios(comparison)
        yield from speed.latencies(comparison)
        yield from speed.acceptance(comparison)
        yield from speed.energy(comparison)
    yield from servers.starts(comparison)
    for name in TIMELINES:
        yield from servers.over_time(comparison, name, drawn)
    if comparison.recovery:
        yield from servers.recovery(comparison, drawn)
    yield from servers.not_measured(comparison)
    yield from servers.failures(comparison)
    yield from servers.origin(comparison)


def _method(comparison: Comparison) -> str:
    rounds, runs = comparison.settings["rounds"], comparison.provenance["runs"]
    order = (
        "All servers were up at once and loaded in turn, each level of each round on every arm "
        "before the next. Ratios are taken within a round."
        if comparison.side_by_side
        else "One server after the other, rounds interleaved over levels. Ratios are of medians."
    )
    clients = dict.fromkeys(f"{run['client']} ({run['client_reason']})" for run in runs)
    return (
        f"Medians of {rounds} round{'s' if rounds > 1 else ''}, lowest and highest in brackets. "
        f"{order} Client: {'; '.join(clients)}."
    )
