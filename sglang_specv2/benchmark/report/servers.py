"""Sections about the servers themselves: start, memory, recovery, failures, provenance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from sglang_specv2.benchmark import labels
from sglang_specv2.benchmark.alignment import FIRST_STEPS
from sglang_specv2.benchmark.arms import NEVER_OFF
from sglang_specv2.benchmark.load import TIMELINE_TITLES, Load
from sglang_specv2.benchmark.report.markdown import (
    NOT_THERE,
    number,
    picture,
    ratio_cell,
    section,
    table,
)
from sglang_specv2.benchmark.tables import (
    Comparison,
    recovery_figures,
    rivals,
    timeline_figures,
    timeline_rounds,
)


def starts(comparison: Comparison) -> Iterator[str]:
    """How long a start takes and what it costs in memory."""
    started = [line for line in comparison.starts.values() if line["error"] is None]
    if not started:
        return
    beside = (
        " Servers started at the same time, so times and the peak are not those of one alone."
        if any(line["started_beside_others"] for line in started)
        else ""
    )
    yield from section(
        "Start and memory",
        labels.caveats(comparison.provenance),
        "Start: from the process to the first good health check. Weights, KV pool and graphs: what "
        f"the server says. Peak: the most that was in use on the whole GPU.{beside}",
    )
    header = ["server", "start, s", "weights, GB", "KV pool, GB", "graphs, GB", "peak, GB"]
    yield from table(header, [_start(comparison, line) for line in started])


def _start(comparison: Comparison, line: dict[str, Any]) -> list[str]:
    usage = line["memory_usage_gb"] or {}
    peaks = [
        peak
        for load in comparison.loads
        for peak in comparison.values(line["arm"], load, "peak_memory_bytes").values()
    ]
    return [
        line["arm"],
        number(line["start_s"], 1),
        number(usage.get("weight"), 2),
        number(usage.get("kvcache"), 2),
        number(_total(usage.get("graph")), 2),
        number(max(peaks) / 1e9, 1) if peaks else NOT_THERE,
    ]


def _total(usage: Any) -> float | None:
    """SGLang tells one number, or one for each part, which may themselves have parts."""
    if isinstance(usage, dict):
        parts = [part for part in map(_total, usage.values()) if part is not None]
        return sum(parts) if parts else None
    return float(usage) if isinstance(usage, int | float) else None


def over_time(comparison: Comparison, name: str, drawn: Sequence[str]) -> Iterator[str]:
    """Throughput while clients come and go."""
    figures = timeline_figures(comparison, name)
    if not figures:
        return
    fixed = ", ".join(rivals([figure.arm for figure in figures])) or "none here"
    yield from section(
        f"Over time: a {TIMELINE_TITLES[name]}",
        labels.caveats(comparison.provenance),
        f"Ratio: to the arm that was the best in each phase, of those that never switch ({fixed}). "
        + _passes(figures[0].rounds),
    )
    rows = [
        [
            labels.arm_title(figure.arm, comparison.settings),
            number(figure.tokens_s, 0),
            number(figure.ratio, 3),
        ]
        for figure in figures
    ]
    yield from table(["arm", "output tokens/s", "ratio to the best of each phase"], rows)
    words = "Batch size, mode and throughput while clients come and go"
    yield from picture(f"timeline-{name}", words, drawn)


def _passes(rounds: int) -> str:
    chance = "The best of several is partly that by chance, which lowers the ratio"
    if rounds == 1:
        return f"One pass, so a few percent of it are chance. {chance}."
    return (
        f"The rate of a phase is its mean over {rounds} rounds, those that all arms have; the "
        f"figure shows the first. {chance}, less with more rounds."
    )


def recovery(comparison: Comparison, drawn: Sequence[str]) -> Iterator[str]:
    """Acceptance after a period without speculation."""
    settings = comparison.settings
    yield from section(
        "Acceptance after an off period",
        labels.recovery_caveats(comparison.provenance),
        f"{labels.recovery_setup(comparison.provenance)}. {settings['recovery_matter']} requests "
        "at a time lived through a period without speculation; it ended when the "
        f"{settings['recovery_fillers']} other requests did, which kept the batch over the size at "
        f"which speculation stops ({settings['recovery_threshold']}). Sampled at temperature "
        f"{settings['recovery_temperature']:g}: greedy text of a small model loops, and in a loop "
        "every draft is right.",
        f"First {FIRST_STEPS}: mean accept length of a request in its first {FIRST_STEPS} "
        "speculative steps; of SGLang's adaptive worker, whose plain steps look like verifies that "
        "accepted nothing, from behind its first success, which flatters it. Left out: requests "
        "for which the server sent two steps in one.",
    )
    header = ["tokens without", "arm", "requests", "left out", "tokens before"]
    rows = [
        [
            str(figure.asked_plain_tokens),
            labels.recovery_title(figure.arm),
            str(figure.requests),
            str(figure.merged),
            number(figure.plain_tokens, 0),
            number(figure.first.value, 3),
            "1" if figure.arm == NEVER_OFF else ratio_cell(figure.ratio),
        ]
        for figure in recovery_figures(comparison)
    ]
    yield from table([*header, f"first {FIRST_STEPS}", "ratio to never off"], rows)
    yield from picture("recovery", "Accept length by step after an off period", drawn)


def not_measured(comparison: Comparison) -> Iterator[str]:
    """What was asked for and is not there, whatever the reason."""
    gaps = [*_speed_gaps(comparison), *_recovery_gaps(comparison)]
    if gaps:
        yield from section(
            "Not measured",
            [],
            "Asked for and not there: no time was left for it, its arm failed, or it was "
            "interrupted. The same command continues.",
            "\n".join(f"- {gap}" for gap in gaps),
        )


def _speed_gaps(comparison: Comparison) -> Iterator[str]:
    settings = comparison.settings
    loads = [Load("closed", level) for level in settings["levels"]]
    loads += [Load("poisson", rate) for rate in settings["rates"]]
    timelines = {name: timeline_rounds(comparison, name) for name in settings["timelines"]}
    for arm in settings["arms"]:
        counts = {load: len(comparison.rounds(arm, load)) for load in loads}
        gaps = [
            f"{load.label}: {count} of {settings['rounds']} rounds"
            for load, count in counts.items()
            if count < settings["rounds"]
        ]
        for name, rounds in timelines.items():
            asked, title = settings["timeline_rounds"], TIMELINE_TITLES[name]
            found = len(rounds.get(arm, ()))
            if found < asked:
                gaps.append(f"{title}: {found} of {asked} rounds" if found else f"no {title}")
        if gaps:
            yield f"{arm}: {'; '.join(gaps)}"


def _recovery_gaps(comparison: Comparison) -> Iterator[str]:
    settings = comparison.settings
    for length in settings["recovery_plain_tokens"]:
        for arm in settings["recovery_arms"]:
            batches = sum(
                (line["arm"], line["asked_plain_tokens"]) == (arm, length)
                for line in comparison.recovery
            )
            if batches < settings["recovery_batches"]:
                of = settings["recovery_batches"]
                yield f"recovery of {arm} after {length} tokens: {batches} of {of} batches"


def failures(comparison: Comparison) -> Iterator[str]:
    """Why arms failed, with the end of their logs."""
    for arm, line in comparison.failed.items():
        log = "\n".join(["```", line["log_tail"] or "(empty)", "```"])
        yield from section(f"Failed: {arm}", [], f"{line['error']}. The end of its log:", log)


def origin(comparison: Comparison) -> Iterator[str]:
    """Versions, machine, commands."""
    provenance = comparison.provenance
    versions = [f"{name} {found}" for name, found in provenance["versions"].items() if found]
    yield from section(
        "Where these numbers come from",
        [],
        f"{', '.join(versions)}; commit {provenance['commit'] or 'unknown'}.",
    )
    for run in provenance["runs"]:
        note = f" {run['note']}." if run["note"] else ""
        yield f"- {run['began']}, {_machine(run)}, {run['system']}.{note} `{run['command']}`"
    yield ""
    commands = [f"# {arm}\n{line['command']}" for arm, line in comparison.starts.items()]
    yield from ["```bash", *commands, "```"]


def _machine(run: dict[str, Any]) -> str:
    gpu = run["gpu"]
    if gpu is None:
        return f"{run['cpu']['cores']} CPU cores"
    return (
        f"{gpu['name']}, driver {gpu['driver']}, power limit {number(gpu['power_limit_w'], 0)} W, "
        f"SM clock {number(gpu['sm_clock_mhz'], 0)} MHz at the start, at most "
        f"{number(gpu['max_sm_clock_mhz'], 0)}"
    )
