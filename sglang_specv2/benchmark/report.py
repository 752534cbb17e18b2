"""The Markdown report of a result folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.alignment import FIRST_STEPS
from sglang_specv2.benchmark.arms import ARMS, NEVER_OFF
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.statistics import LEAST_ROUNDS, RESOLUTION, Ratio
from sglang_specv2.benchmark.tables import BASELINE, Comparison, recovery_figures

NOT_THERE = "–"
NOT_RESOLVED = "not resolved"

Cell = Callable[[str, Load], str]


def write(comparison: Comparison, figures: Sequence[str]) -> str:
    """The report.

    Args:
        figures: names of the pictures beside it, without suffix.
    """
    return "\n".join(_lines(comparison, figures)).rstrip() + "\n"


def _lines(comparison: Comparison, figures: Sequence[str]) -> Iterator[str]:
    yield "# Benchmark"
    yield ""
    yield labels.setup(comparison.provenance) + "."
    yield ""
    for caveat in _explained_caveats(comparison):
        yield f"> **{caveat}**"
        yield ">"
    yield _method(comparison)
    yield ""
    if comparison.arms:
        yield from _speed(comparison, figures)
        yield from _latency(comparison)
        yield from _modes(comparison)
        yield from _energy(comparison)
    yield from _starts(comparison)
    if comparison.timeline:
        yield from _section(comparison, "Over time")
        yield from _picture("timeline", "Batch size, mode and throughput on a ramp", figures)
    if comparison.recovery:
        yield from _recovery(comparison, figures)
    yield from _missing(comparison)
    yield from _failures(comparison)
    yield from _origin(comparison)


def _explained_caveats(comparison: Comparison) -> Iterator[str]:
    explanations = {
        "CPU": "The CPU engine is for trying the machinery: speeds in this report mean nothing.",
        "DUMMY": "The weights are random: cost is real, text is not.",
        "ACCEPT": "The accept length is simulated: cost is real, acceptance is what was asked for.",
    }
    for caveat in labels.caveats(comparison.provenance):
        yield explanations[caveat.split()[0]]


def _method(comparison: Comparison) -> str:
    settings = comparison.settings
    clients = {run["client"] for run in comparison.provenance["runs"]}
    reasons = {run["client_reason"] for run in comparison.provenance["runs"]}
    order = (
        "All servers were up at once on one GPU and loaded in turn; each level of each round ran on "
        "every arm before the next. Ratios are taken within a round."
        if comparison.side_by_side
        else "One server after the other on the same GPU; rounds are interleaved over levels. "
        "Ratios are of medians."
    )
    return (
        f"Medians of up to {settings['rounds']} rounds, lowest and highest in brackets. {order} "
        f"Client: {', '.join(sorted(clients))} ({'; '.join(sorted(reasons))})."
    )


def _section(comparison: Comparison, title: str, unit: str = "") -> Iterator[str]:
    """A heading with the caveats in it."""
    told = labels.caveats(comparison.provenance)
    suffix = f" ({'; '.join(told)})" if told else ""
    yield f"## {title}{suffix}"
    yield ""
    if unit:
        yield unit
        yield ""


def _table(
    comparison: Comparison,
    cell: Cell,
    arms: Iterable[str] | None = None,
    loads: Sequence[Load] | None = None,
) -> Iterator[str]:
    """A row for each arm, a column for each load; an arm that failed says so where it has none."""
    loads = comparison.loads if loads is None else loads
    yield "| arm | " + " | ".join(load.label for load in loads) + " |"
    yield "|---" * (len(loads) + 1) + "|"
    for arm in comparison.arms if arms is None else arms:
        cells = [cell(arm, load) for load in loads]
        if arm in comparison.failed:
            cells = ["failed" if text == NOT_THERE else text for text in cells]
        yield f"| {labels.arm_title(arm, comparison.settings)} | " + " | ".join(cells) + " |"
    yield ""


def _asked_arms(comparison: Comparison) -> list[str]:
    return [arm for arm in ARMS if arm in comparison.settings["arms"] or arm in comparison.arms]


def _speed(comparison: Comparison, figures: Sequence[str]) -> Iterator[str]:
    yield from _section(comparison, "Output tokens a second")

    def rate(arm: str, load: Load) -> str:
        values = comparison.values(arm, load)
        middle = comparison.median(arm, load)
        if middle is None:
            return NOT_THERE
        if len(values) == 1:
            return f"{middle:.0f}"
        return f"{middle:.0f} ({min(values.values()):.0f}–{max(values.values()):.0f})"

    yield from _table(comparison, rate, _asked_arms(comparison))
    crossover = comparison.crossover()
    if crossover is not None:
        yield (
            f"No speculation and SGLang's EAGLE-3 cross at about {crossover[0]:.0f} requests at once."
        )
        yield ""
    yield from _picture("throughput", "Output tokens a second against concurrency", figures)
    if BASELINE in comparison.arms:
        yield from _section(
            comparison,
            "Ratio to no speculation",
            f"With 95 % bootstrap intervals. *{NOT_RESOLVED}*: fewer than {LEAST_ROUNDS} rounds, or "
            f"the rounds are further apart than what the ratio says (at least {RESOLUTION:.0%}).",
        )
        others = [arm for arm in comparison.arms if arm != BASELINE]
        yield from _table(
            comparison, lambda arm, load: _ratio(comparison.ratio(arm, BASELINE, load)), others
        )
    if len(comparison.arms) > 1:
        yield from _section(
            comparison,
            "Ratio to the best other arm",
            "Above one: this arm is the best at that level.",
        )

        def to_best(arm: str, load: Load) -> str:
            best = comparison.best(load, [other for other in comparison.arms if other != arm])
            return NOT_THERE if best is None else _ratio(comparison.ratio(arm, best, load))

        yield from _table(comparison, to_best)


def _ratio(ratio: Ratio | None) -> str:
    if ratio is None:
        return NOT_THERE
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.known else ""
    mark = "" if ratio.resolved else f" *{NOT_RESOLVED}*"
    return f"{ratio.value:.3f}{interval}{mark}"


def _latency(comparison: Comparison) -> Iterator[str]:
    for figure, title in (("ttft_ms", "Time to first token"), ("itl_ms", "Inter-token latency")):
        yield from _section(
            comparison, title, "Milliseconds: p50 / p95 / p99, medians over rounds."
        )

        def latencies(arm: str, load: Load, figure: str = figure) -> str:
            found = [comparison.median(arm, load, f"{figure}_p{p}") for p in (50, 95, 99)]
            known = [f"{value:.1f}" for value in found if value is not None]
            return " / ".join(known) if known else NOT_THERE

        yield from _table(comparison, latencies)


def _modes(comparison: Comparison) -> Iterator[str]:
    speculating = [arm for arm in comparison.arms if ARMS[arm].speculates]
    if not speculating:
        return
    yield from _section(
        comparison,
        "Accept length",
        "Tokens per verify, drafts and bonus token; plain steps not in it.",
    )
    yield from _table(
        comparison,
        lambda arm, load: _number(comparison.median(arm, load, "accept_length"), 2),
        speculating,
    )
    ours = [arm for arm in comparison.arms if ARMS[arm].policy is not None]
    if not ours:
        return
    yield from _section(
        comparison,
        "Modes",
        "Share of time without speculation / share of decode steps / switches in a round. Time is "
        "what looking at the server now and then found, and counts idle moments as the mode before.",
    )

    def modes(arm: str, load: Load) -> str:
        rounds = list(comparison.rounds(arm, load).values())
        if not rounds:
            return NOT_THERE
        shares = [line["time_share"]["plain"] for line in rounds if line.get("time_share")]
        plain = sum(line.get("steps_plain", 0) for line in rounds)
        steps = plain + sum(line.get("steps_speculative", 0) for line in rounds)
        switches = sum(line.get("switches", 0) for line in rounds) / len(rounds)
        time_share = f"{sum(shares) / len(shares):.0%}" if shares else NOT_THERE
        step_share = f"{plain / steps:.0%}" if steps else NOT_THERE
        return f"{time_share} / {step_share} / {switches:.3g}"

    yield from _table(comparison, modes, ours)
    if "always" in ours:
        yield "Always on, the worker does not look at steps and counts none."
        yield ""


def _energy(comparison: Comparison) -> Iterator[str]:
    yield from _section(comparison, "Energy")
    if comparison.provenance["gpu_name"] is None:
        yield "Not measured: no NVIDIA GPU."
        yield ""
        return
    shared = (
        " The idle servers beside the one that is loaded take part in it."
        if comparison.side_by_side
        else ""
    )
    yield f"Joules of the whole GPU for each output token, from its energy counter.{shared}"
    yield ""
    yield from _table(
        comparison, lambda arm, load: _number(comparison.median(arm, load, "joules_per_token"), 3)
    )


def _starts(comparison: Comparison) -> Iterator[str]:
    started = [line for line in comparison.starts.values() if line["error"] is None]
    if not started:
        return
    beside = any(line["started_beside_others"] for line in started)
    note = (
        " Servers started at once, so times and memory are not those of one alone."
        if beside
        else ""
    )
    yield from _section(
        comparison,
        "Start and memory",
        "Start: from the process to the first good health check. Weights, KV pool and graphs as the "
        f"server says. Peak: of the whole GPU.{note}",
    )
    yield "| server | start, s | weights, GB | KV pool, GB | graphs, GB | peak, GB |"
    yield "|---|---|---|---|---|---|"
    for line in started:
        usage = line.get("memory_usage_gb") or {}
        peaks = [
            peak
            for load in comparison.loads
            for peak in comparison.values(line["arm"], load, "peak_memory_bytes").values()
        ]
        cells = [
            _number(line["start_s"], 1),
            _number(usage.get("weight"), 2),
            _number(usage.get("kvcache"), 2),
            _number(_graphs_gb(usage.get("graph")), 2),
            f"{max(peaks) / 1e9:.1f}" if peaks else NOT_THERE,
        ]
        yield f"| {line['arm']} | " + " | ".join(cells) + " |"
    yield ""


def _graphs_gb(usage: Any) -> float | None:
    """SGLang tells one number, or one for each part, which may themselves be split."""
    if isinstance(usage, dict):
        parts = [part for part in map(_graphs_gb, usage.values()) if part is not None]
        return sum(parts) if parts else None
    return float(usage) if isinstance(usage, int | float) else None


def _recovery(comparison: Comparison, figures: Sequence[str]) -> Iterator[str]:
    settings = comparison.settings
    told = [text for text in labels.caveats(comparison.provenance) if text.startswith("CPU")]
    yield "## Acceptance after an off period" + (f" ({'; '.join(told)})" if told else "")
    yield ""
    yield (
        f"Pair: {comparison.provenance['recovery_pair']}. {settings['recovery_matter']} requests at a "
        "time lived through a period without speculation; it ended when "
        f"{settings['recovery_fillers']} others did. Sampled at temperature "
        f"{settings['recovery_temperature']:g}, since greedy text of a small model loops. First "
        f"{FIRST_STEPS}: mean accept length of the first {FIRST_STEPS} speculative steps. The first "
        "is the first in which any request of the batch got more than one token."
    )
    yield ""
    yield "| tokens without | arm | requests | left out | tokens before | " + (
        f"first {FIRST_STEPS} | ratio to never off |"
    )
    yield "|---|---|---|---|---|---|---|"
    for figure in recovery_figures(comparison):
        cells = [
            str(figure.asked_plain_tokens),
            labels.arm_title(
                figure.arm,
                {
                    "threshold": settings["recovery_threshold"],
                    "tier_from": settings["recovery_threshold"] + 1,
                },
            ),
            str(figure.requests),
            str(figure.merged),
            f"{figure.plain_tokens:.0f}",
            f"{figure.first.value:.3f}",
            "never off" if figure.arm == NEVER_OFF else _ratio(figure.ratio),
        ]
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield from _picture("recovery", "Accept length by step after an off period", figures)


def _picture(name: str, words: str, figures: Sequence[str]) -> Iterator[str]:
    if name in figures:
        yield f"![{words}]({name}.svg)"
        yield ""


def _missing(comparison: Comparison) -> Iterator[str]:
    """What was asked for and is not there, whatever the reason."""
    settings = comparison.settings
    wanted = [Load("closed", level) for level in settings["levels"]]
    wanted += [Load("poisson", rate) for rate in settings["rates"]]
    lines = []
    for arm in settings["arms"]:
        gaps = [
            f"{load.label}: {len(comparison.rounds(arm, load))} of {settings['rounds']} rounds"
            for load in wanted
            if len(comparison.rounds(arm, load)) < settings["rounds"]
        ]
        if settings["timeline"] and not any(line["arm"] == arm for line in comparison.timeline):
            gaps.append("no time line")
        if gaps:
            lines.append(f"- {arm}: {'; '.join(gaps)}")
    for length in settings["recovery_plain_tokens"]:
        for arm in settings["recovery_arms"]:
            batches = [
                line
                for line in comparison.recovery
                if line["arm"] == arm and line["asked_plain_tokens"] == length
            ]
            if len(batches) < settings["recovery_batches"]:
                lines.append(
                    f"- recovery, {arm}, {length} tokens: {len(batches)} of "
                    f"{settings['recovery_batches']} batches"
                )
    if lines:
        yield "## Not measured"
        yield ""
        yield "Asked for and not there: no time was left, the arm failed, or it was interrupted. The "
        yield "same command continues."
        yield ""
        yield from lines
        yield ""


def _failures(comparison: Comparison) -> Iterator[str]:
    if not comparison.failed:
        return
    yield "## Failures"
    yield ""
    for arm, line in comparison.failed.items():
        yield f"**{arm}**: {line['error']}. The end of its log:"
        yield ""
        yield "```"
        yield from (line["log_tail"] or "(empty)").splitlines()
        yield "```"
        yield ""


def _origin(comparison: Comparison) -> Iterator[str]:
    provenance = comparison.provenance
    yield "## Where these numbers come from"
    yield ""
    versions = [f"{name} {found}" for name, found in provenance["versions"].items() if found]
    yield f"- Versions: {', '.join(versions)}; commit {provenance['commit'] or 'unknown'}."
    for run in provenance["runs"]:
        gpu = run["gpu"]
        machine = (
            f"{gpu['name']}, driver {gpu['driver']}, power limit {_number(gpu['power_limit_w'], 0)} W, "
            f"clock {_number(gpu['sm_clock_mhz'], 0)} of {_number(gpu['max_sm_clock_mhz'], 0)} MHz"
            if gpu
            else f"{run['cpu']['cores']} cores, no GPU"
        )
        note = f" {run['note']}." if run.get("note") else ""
        yield f"- {run['began']}: {machine}; {run['system']}.{note} Command: `{run['command']}`"
    yield ""
    yield "Servers:"
    yield ""
    yield "```bash"
    for arm, line in comparison.starts.items():
        yield f"# {arm}"
        yield line["command"]
    yield "```"


def _number(value: float | None, digits: int) -> str:
    return NOT_THERE if value is None else f"{value:.{digits}f}"
