"""Sections about what was measured at a level: rates, ratios, latencies, acceptance, energy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.arms import ARMS
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.report.markdown import (
    NOT_THERE,
    figure_section,
    number,
    picture,
    ratio_cell,
    section,
)
from sglang_specv2.benchmark.statistics import LEAST_ROUNDS, RESOLUTION
from sglang_specv2.benchmark.tables import BASELINE, Comparison


def rates(comparison: Comparison, drawn: Sequence[str]) -> Iterator[str]:
    """Output tokens a second, and where no speculation and EAGLE-3 cross."""
    asked = [arm for arm in ARMS if arm in {*comparison.settings["arms"], *comparison.arms}]

    def rate(arm: str, load: Load) -> str:
        values = comparison.values(arm, load).values()
        spread = f" ({min(values):.0f}–{max(values):.0f})" if len(values) > 1 else ""
        return number(comparison.median(arm, load), 0) + spread

    yield from figure_section(comparison, "Output tokens a second", [], rate, asked)
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
    others = [arm for arm in comparison.arms if arm != BASELINE]
    explained = (
        f"With 95 % bootstrap intervals. Not resolved: fewer than {LEAST_ROUNDS} rounds, or an "
        "interval that is wider to either side than the difference from one that it is about (at "
        f"least {RESOLUTION:.0%}), or that includes one where a difference is claimed."
    )

    def to_baseline(arm: str, load: Load) -> str:
        return ratio_cell(comparison.ratio(arm, BASELINE, load))

    yield from figure_section(
        comparison, "Ratio to no speculation", [explained], to_baseline, others
    )
    above = "Above one: this arm is the best at that level."
    yield from figure_section(
        comparison, "Ratio to the best other arm", [above], partial(_to_best, comparison)
    )
    as_asked = comparison.as_asked()
    if as_asked is not None:
        drawn = (
            "SGLang draws one accept length per step for the whole batch, so each arm had its "
            "luck. Here are the same rounds as if every arm had drawn "
            f"{comparison.settings['simulate_accept_length']:g} on average: the time that its "
            "steps took, with the tokens that they would have given."
        )
        yield from figure_section(
            as_asked,
            "The same without the luck of the draw",
            [drawn],
            partial(_to_best, as_asked),
        )
    fastest = (
        "Whatever disturbs a round, such as a slow spell of the host, makes it slower and never "
        "faster. So here is the fastest round of each arm, to the fastest of all others"
        f"{'' if as_asked is None else ', without the luck of the draw'}. It says nothing about "
        "how often an arm is disturbed, and an arm with more rounds has more chances."
    )
    yield from figure_section(
        as_asked or comparison,
        "Fastest rounds",
        [fastest],
        partial(_fastest, as_asked or comparison),
    )


def _to_best(comparison: Comparison, arm: str, load: Load) -> str:
    best = comparison.best(load, _others(comparison, arm))
    return NOT_THERE if best is None else ratio_cell(comparison.ratio(arm, best, load))


def _fastest(comparison: Comparison, arm: str, load: Load) -> str:
    return number(comparison.fastest_ratio(arm, _others(comparison, arm), load), 3)


def _others(comparison: Comparison, arm: str) -> list[str]:
    return [other for other in comparison.arms if other != arm]


def latencies(comparison: Comparison) -> Iterator[str]:
    """Time to first token, inter-token latency."""

    def percentiles(figure: str, arm: str, load: Load) -> str:
        found = [comparison.median(arm, load, f"{figure}_p{p}") for p in (50, 95, 99)]
        return " / ".join(number(value, 1) for value in found if value is not None) or NOT_THERE

    unit = "Milliseconds: p50 / p95 / p99 of a round, medians over rounds."
    for figure, title in (("ttft_ms", "Time to first token"), ("itl_ms", "Inter-token latency")):
        yield from figure_section(comparison, title, [unit], partial(percentiles, figure))


def acceptance(comparison: Comparison) -> Iterator[str]:
    """Accept length, and how much of the time was without speculation."""
    yield from figure_section(
        comparison,
        "Accept length",
        [
            "Tokens per verify, drafts and bonus token. sglang-specv2 leaves plain steps out; "
            "SGLang's adaptive worker counts each as a verify of one token."
        ],
        lambda arm, load: number(comparison.median(arm, load, "accept_length"), 2),
        [arm for arm in comparison.arms if ARMS[arm].speculates],
    )
    yield from figure_section(
        comparison,
        "Modes",
        [
            "Share of time without speculation / share of decode steps without / switches in a "
            "round. Time is what looks at the server found, one every "
            f"{comparison.settings['look_period_s']:g} s."
        ],
        partial(_modes, comparison),
        [arm for arm in comparison.arms if ARMS[arm].policy not in (None, "always")],
    )


def _modes(comparison: Comparison, arm: str, load: Load) -> str:
    rounds = [line for line in comparison.rounds(arm, load).values() if "steps_plain" in line]
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
    if comparison.provenance["gpu_name"] is None:
        told = labels.caveats(comparison.provenance)
        yield from section("Energy", told, "Not measured: no NVIDIA GPU.")
        return
    shared = (
        " The idle servers beside the one that is loaded have their part in it."
        if comparison.side_by_side
        else ""
    )
    yield from figure_section(
        comparison,
        "Energy",
        [f"Joules of the whole GPU for each output token, from its energy counter.{shared}"],
        lambda arm, load: number(comparison.median(arm, load, "joules_per_token"), 3),
    )
