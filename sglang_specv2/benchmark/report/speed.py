"""Sections about what was measured at a level: rates, ratios, latencies, acceptance, energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.arms import ARMS
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.report.markdown import (
    NOT_THERE,
    by_load,
    number,
    picture,
    ratio_cell,
    section,
)
from sglang_specv2.benchmark.statistics import LEAST_ROUNDS, RESOLUTION
from sglang_specv2.benchmark.tables import BASELINE, Comparison


def rates(comparison: Comparison, drawn: Sequence[str]) -> Iterator[str]:
    """Output tokens a second, and where no speculation and EAGLE-3 cross."""
    told = labels.caveats(comparison.provenance)
    asked = [arm for arm in ARMS if arm in {*comparison.settings["arms"], *comparison.arms}]
    yield from section("Output tokens a second", told)

    def rate(arm: str, load: Load) -> str:
        values = comparison.values(arm, load).values()
        spread = f" ({min(values):.0f}–{max(values):.0f})" if len(values) > 1 else ""
        return number(comparison.median(arm, load), 0) + spread

    yield from by_load(comparison, rate, asked)
    crossover = comparison.crossover()
    if crossover is not None:
        yield (
            "No speculation and SGLang's EAGLE-3 cross at about "
            f"{labels.about(crossover[0])} requests at once."
        )
        yield ""
    yield from picture("throughput", "Output tokens a second against concurrency", drawn)


def ratios(comparison: Comparison) -> Iterator[str]:
    """To no speculation, and to the best of the other arms."""
    told = labels.caveats(comparison.provenance)
    others = [arm for arm in comparison.arms if arm != BASELINE]
    if BASELINE in comparison.arms and others:
        yield from section(
            "Ratio to no speculation",
            told,
            f"With 95 % bootstrap intervals. Not resolved: fewer than {LEAST_ROUNDS} rounds, or an "
            "interval that is wider to either side than the difference from one that it is about "
            f"(at least {RESOLUTION:.0%}), or that includes one where a difference is claimed.",
        )
        yield from by_load(
            comparison, lambda arm, load: ratio_cell(comparison.ratio(arm, BASELINE, load)), others
        )
    if not others or len(comparison.arms) < 2:
        return

    def to_best(arm: str, load: Load) -> str:
        best = comparison.best(load, [other for other in comparison.arms if other != arm])
        return NOT_THERE if best is None else ratio_cell(comparison.ratio(arm, best, load))

    above = "Above one: this arm is the best at that level."
    yield from section("Ratio to the best other arm", told, above)
    yield from by_load(comparison, to_best)


def latencies(comparison: Comparison) -> Iterator[str]:
    """Time to first token, inter-token latency."""
    told = labels.caveats(comparison.provenance)
    for figure, title in (("ttft_ms", "Time to first token"), ("itl_ms", "Inter-token latency")):
        unit = "Milliseconds: p50 / p95 / p99 of a round, medians over rounds."
        yield from section(title, told, unit)

        def percentiles(arm: str, load: Load, figure: str = figure) -> str:
            found = [comparison.median(arm, load, f"{figure}_p{p}") for p in (50, 95, 99)]
            known = [number(value, 1) for value in found if value is not None]
            return " / ".join(known) or NOT_THERE

        yield from by_load(comparison, percentiles)


def acceptance(comparison: Comparison) -> Iterator[str]:
    """Accept length, and how much of the time was without speculation."""
    told = labels.caveats(comparison.provenance)
    speculating = [arm for arm in comparison.arms if ARMS[arm].speculates]
    if speculating:
        yield from section(
            "Accept length",
            told,
            "Tokens per verify, drafts and bonus token. sglang-specv2 leaves plain steps out; "
            "SGLang's adaptive worker counts each as a verify of one token.",
        )
        yield from by_load(
            comparison,
            lambda arm, load: number(comparison.median(arm, load, "accept_length"), 2),
            speculating,
        )
    ours = [arm for arm in speculating if ARMS[arm].policy not in (None, "always")]
    if ours:
        yield from section(
            "Modes",
            told,
            "Share of time without speculation / share of decode steps without / switches in a "
            "round. Time is what looks at the server found, one every "
            f"{comparison.settings['look_period_s']:g} s.",
        )
        yield from by_load(comparison, lambda arm, load: _modes(comparison, arm, load), ours)


def _modes(comparison: Comparison, arm: str, load: Load) -> str:
    rounds = list(comparison.rounds(arm, load).values())
    if not rounds:
        return NOT_THERE
    shares = [line["time_share"]["plain"] for line in rounds if line["time_share"] is not None]
    plain = sum(line["steps_plain"] for line in rounds)
    steps = plain + sum(line["steps_speculative"] for line in rounds)
    time_share = f"{fmean(shares):.0%}" if shares else NOT_THERE
    step_share = f"{plain / steps:.0%}" if steps else NOT_THERE
    return f"{time_share} / {step_share} / {fmean(line['switches'] for line in rounds):.3g}"


def energy(comparison: Comparison) -> Iterator[str]:
    """Joules for each output token."""
    told = labels.caveats(comparison.provenance)
    if comparison.provenance["gpu_name"] is None:
        yield from section("Energy", told, "Not measured: no NVIDIA GPU.")
        return
    shared = (
        " The idle servers beside the one that is loaded have their part in it."
        if comparison.side_by_side
        else ""
    )
    of = f"Joules of the whole GPU for each output token, from its energy counter.{shared}"
    yield from section("Energy", told, of)
    yield from by_load(
        comparison, lambda arm, load: number(comparison.median(arm, load, "joules_per_token"), 3)
    )
