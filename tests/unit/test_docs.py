"""The documentation names what there is: settings, faults, refusals, files, the data of figures."""

import json
import re
from pathlib import Path

import pytest

from sglang_specv2 import gates
from sglang_specv2.benchmark import labels, statistics
from sglang_specv2.benchmark.figures import draw_all
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.results import Results
from sglang_specv2.benchmark.tables import Comparison, timeline_figures
from sglang_specv2.draft_sync.proposals import NAN_CHECK_STEPS
from sglang_specv2.metrics import _COUNTERS as COUNTERS
from sglang_specv2.options import DEFAULT_SWITCH_MIN_DWELL, DRAFT_SYNCS, DYNAMICS, OPTIONS
from sglang_specv2.version import SUPPORTED_SGLANG

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "docker" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def cells(text: str) -> list[list[str]]:
    """The rows of every table of a page."""
    rows = [line.strip("| ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.split(" | ")] for row in rows]


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_link_leads_somewhere(file):
    text = file.read_text(encoding="utf-8")
    for link in LINK.findall(text):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.field)
def test_every_option_has_its_row(option):
    rows = [row for row in cells(page("flags.md")) if f"`{option.variable}`" in row]
    assert len(rows) == 1
    assert len(rows[0][-1]) > 10
    if option.flag is not None:
        assert rows[0][0].startswith(f"`{option.flag} ")
        # The page tells this rule instead of every keyword.
        assert option.keyword == option.flag.removeprefix("--").replace("-", "_")


def test_defaults_and_choices_are_those_of_the_code():
    rows = {row[0].strip("`").partition(" ")[0]: row for row in cells(page("flags.md"))}
    dwell = rows["--speculative-switch-min-dwell"][2]
    assert f"(default: {DEFAULT_SWITCH_MIN_DWELL})" in dwell
    for flag, choices in (
        ("--speculative-dynamic", DYNAMICS),
        ("--speculative-draft-sync", DRAFT_SYNCS),
    ):
        assert all(choice in rows[flag][0] for choice in choices)


def test_how_often_drafts_are_looked_at_for_nan_is_told():
    said = f"one speculative step of {NAN_CHECK_STEPS}"
    dashboard = (ROOT / "docs/grafana/sglang-specv2.json").read_text(encoding="utf-8")
    for text in (page("operating.md"), page("limits.md"), COUNTERS["nan_drafts"][0], dashboard):
        assert said in " ".join(text.split())


def test_every_refusal_is_told():
    told = page("limits.md")
    assert all(f"`{name}`" in told for name in gates.EAGLE_ALGORITHMS)
    assert all(f"`{name}`" in told for name in gates._OTHER_ALGORITHMS)
    flags = set(re.findall(r"--[a-z-]+", Path(gates.__file__).read_text(encoding="utf-8")))
    assert {flag for flag in flags if f"`{flag}" not in told} == set()


def test_every_planted_fault_is_told(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "probe"))
    from specv2_probe.faults import FAULTS

    assert set(FAULTS) <= {row[0].strip("`") for row in cells(page("testing.md"))}


def test_the_supported_version_is_the_same_everywhere():
    for file in PAGES:
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"SGLang (\d+\.\d+\.\d+)", text)) <= {SUPPORTED_SGLANG}


LEVELS = (1, 4, 8, 16, 32, 64, 128)


def by_level(comparison: Comparison, figure, digits: int) -> list[str]:
    """A figure at each level, and a dash where a level was not measured."""
    found = {load.level: f"{figure(load):.{digits}f}" for load in comparison.loads}
    assert set(found) <= set(LEVELS)
    return [found.get(level, "–") for level in LEVELS]


H200_REPORTS = [
    f"h200-8b-{attention}-accept-{length}"
    for attention in ("triton", "fa3")
    for length in ("2.2", "1.4")
]


@pytest.mark.parametrize(
    "link",
    [
        *(f"[report](benchmarks/{name}/report.md)" for name in H200_REPORTS),
        "[rounds](measured/auto-triton-2.2/rounds.jsonl)",
        "[rounds](measured/auto-fa3-2.2/rounds.jsonl)",
        "[rounds](measured/auto-fa3-1.4/rounds.jsonl)",
        "[rounds](measured/auto-fa3-1.4-280e6f4/rounds.jsonl)",
        "[rounds](measured/auto-fa3-1.4-627c856/rounds.jsonl)",
        "[rounds](measured/auto-triton-1.4/rounds.jsonl)",
        "[rounds](measured/auto-triton-1.4-627c856/rounds.jsonl)",
    ],
)
def test_the_ratios_of_auto_are_those_of_the_rounds(link):
    comparison = Comparison(Results.existing((ROOT / "docs" / link.split("(")[1]).parent))
    evened, others = comparison.as_asked(), ["none", "stock"]

    def to_the_better(form):
        return lambda load: form.ratio("auto", form.best(load, others), load).value

    def fastest(load):
        return evened.fastest_ratio("auto", others, load)

    settings = comparison.settings
    setup = [settings["attention_backend"], str(settings["simulate_accept_length"])]
    figures = to_the_better(comparison), to_the_better(evened), fastest
    shown = [[*setup, *by_level(comparison, figure, 2), link] for figure in figures]
    rows = [row for row in cells(page("measurements.md")) if row[-1] == link and len(row) == 10]
    assert rows == shown


@pytest.mark.parametrize(
    ("attention", "length", "folders"),
    [
        ("triton", "2.2", ["auto-triton-2.2"]),
        ("triton", "1.4", ["auto-triton-1.4", "auto-triton-1.4-627c856"]),
        ("fa3", "2.2", ["auto-fa3-2.2", "timelines-fa3"]),
        ("fa3", "1.4", ["auto-fa3-1.4", "auto-fa3-1.4-280e6f4", "auto-fa3-1.4-627c856"]),
    ],
)
def test_the_ratios_of_auto_in_all_rounds_together(attention, length, folders):
    runs = [Comparison(Results.existing(ROOT / "docs/measured" / name)) for name in folders]
    assert {run.settings["attention_backend"] for run in runs} == {attention}
    assert {run.settings["simulate_accept_length"] for run in runs} == {float(length)}
    shown, rounds = [], set()
    for level in LEVELS:
        rates = {
            arm: {
                (folder, number): rate
                for folder, run in zip(folders, runs, strict=True)
                for number, rate in run.values(arm, Load("closed", level)).items()
            }
            for arm in ("none", "stock", "auto")
        }
        if not rates["auto"]:
            shown.append("–")
            continue
        better = max(("none", "stock"), key=lambda arm: statistics.median(rates[arm].values()))
        shown.append(f"{statistics.paired_ratio(rates['auto'], rates[better]).value:.3f}")
        rounds.add(len(rates["auto"].keys() & rates[better].keys()))
    counted = str(min(rounds)) if len(rounds) == 1 else f"{min(rounds)} to {max(rounds)}"
    assert [attention, length, counted, *shown] in cells(page("measurements.md"))


@pytest.mark.parametrize(
    "link",
    [
        "[rounds](measured/off-triton-280e6f4/rounds.jsonl)",
        "[report](benchmarks/h200-8b-triton-accept-2.2/report.md)",
        "[rounds](measured/auto-triton-2.2/rounds.jsonl)",
        "[rounds](measured/auto-triton-2.2-before/rounds.jsonl)",
        "[rounds](measured/off-triton-again/rounds.jsonl)",
        "[rounds](measured/off-triton/rounds.jsonl)",
        "[rounds](measured/off-fa3/rounds.jsonl)",
        "[rounds](measured/off-fa3-again/rounds.jsonl)",
    ],
)
def test_the_ratios_of_off_are_those_of_the_rounds(link):
    folder = (ROOT / "docs" / link.split("(")[1]).parent
    comparison = Comparison(Results.existing(folder))
    off = by_level(comparison, lambda load: comparison.ratio("off", "none", load).value, 3)

    row = [comparison.settings["attention_backend"], *off, link]
    assert row in cells(page("measurements.md"))


@pytest.mark.parametrize(
    ("folder", "timeline", "seconds"),
    [
        ("benchmarks/h200-8b-triton-accept-2.2", "ramp", "2.7 s"),
        ("measured/auto-triton-2.2-before", "square", "4.4 s"),
        ("measured/timelines-triton", "ramp", "2 s"),
        ("measured/timelines-triton", "square", "5 s"),
        ("benchmarks/h200-8b-fa3-accept-2.2", "ramp", "2.8 s"),
        ("benchmarks/h200-8b-fa3-accept-2.2", "square", "5.2 s"),
        ("measured/timelines-fa3", "ramp", "2.8 s"),
    ],
)
def test_the_ratios_over_time_are_those_of_the_lines(folder, timeline, seconds):
    comparison = Comparison(Results.existing(ROOT / "docs" / folder))
    ratios = {figure.arm: figure.ratio for figure in timeline_figures(comparison, timeline)}
    row = [f"{ratios[arm]:.3f}" for arm in ("none", "stock", "auto")]

    figure = f"[figure]({folder}/timeline-{timeline}.svg)"
    found = [row for row in cells(page("measurements.md")) if row[-1].startswith(figure)]
    assert [line[1:4] for line in found if line[0].endswith(f"every {seconds}")] == [row]


@pytest.mark.parametrize(
    ("results", "figure"),
    [
        ("measured/off-and-on", "images/off-and-on.svg"),
        ("measured/auto-triton", "images/auto.svg"),
        *((f"benchmarks/{name}", f"benchmarks/{name}/throughput.svg") for name in H200_REPORTS),
    ],
)
def test_a_figure_is_drawn_from_its_data(results, figure):
    comparison = Comparison(Results.existing(ROOT / "docs" / results))
    figure = (ROOT / "docs" / figure).read_text(encoding="utf-8")

    assert draw_all([comparison])["throughput.svg"].decode() == figure
    for arm in comparison.arms:
        assert labels.arm_title(arm, comparison.settings) in figure
    assert "DUMMY WEIGHTS" in figure
    assert "SIMULATED" in figure


def test_the_rates_of_both_clients_are_those_of_the_lines():
    lines = (ROOT / "docs/measured/client.jsonl").read_text(encoding="utf-8").splitlines()
    rates = {}
    for line in map(json.loads, lines):
        rates.setdefault((line["level"], line["client"]), []).append(line["output_tokens_s"])
    for level in (8, 64):
        own, hand = rates[level, "own"], rates[level, "bench_serving"]
        shown = [", ".join(f"{rate:.0f}" for rate in found) for found in (own, hand)]
        ratio = f"{sum(own) / sum(hand):.3f}"
        assert [str(level), *shown, ratio] in cells(page("measurements.md"))
        assert abs(float(ratio) - 1) < 0.03


def test_the_cost_of_the_draft_sync_is_that_of_the_lines():
    lines = (ROOT / "docs/measured/draft-sync-cost.jsonl").read_text(encoding="utf-8").splitlines()
    told = cells(page("measurements.md"))
    assert len(lines) == 6
    for line in map(json.loads, lines):
        times = f"{line['with_sync_ms']:.3f} ms", f"{line['without_ms']:.3f} ms"
        share = f"{line['share']:.1%}".replace("%", " %")
        assert [line["attention"], str(line["batch_size"]), *times, share] in told


def test_the_figures_numbers_are_those_of_the_table():
    comparison = Comparison(Results.existing(ROOT / "docs/measured/off-and-on"))
    rows = [row[1:] for row in cells(page("measurements.md"))]
    for arm in ("none", "stock", "off"):
        assert [f"{rate:.0f}" for _, rate in comparison.curve(arm)] in rows


@pytest.mark.parametrize(
    "key",
    [
        "policy",
        "mode",
        "draft_steps",
        "batch_size",
        "draft_sync",
        "settings",
        "auto",
        "calibration_failure",
    ],
)
def test_the_state_is_told(key):
    assert f"`{key}`" in page("operating.md")


def test_every_count_of_the_state_is_told():
    from sglang_specv2.counters import StepCounters

    told = page("operating.md")
    assert [key for key in StepCounters().as_dict() if f"`{key}`" not in told] == []


TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@pytest.mark.parametrize("file", PAGES, ids=lambda file: str(file.relative_to(ROOT)))
def test_every_test_that_is_named_exists(file):
    for path, name in TEST.findall(file.read_text(encoding="utf-8")):
        source = (ROOT / path).read_text(encoding="utf-8")
        assert not name or re.search(rf"^def {name}\(", source, re.M), f"{path}::{name}"


@pytest.mark.parametrize(
    "section", ["Supported", "Where results differ from a server without speculation"]
)
def test_every_limit_names_its_test(section):
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", page("limits.md"), re.M | re.S)
    rows = [row for row in cells(text) if len(row) > 1][2:]
    assert len(rows) > 5
    assert [row[0] for row in rows if not TEST.search(row[-1])] == []


def test_every_fault_names_the_test_that_notices_it():
    rows = [row for row in cells(page("testing.md")) if len(row) == 3][2:]
    faults = [row for row in rows if "/" not in row[0] and row[0].startswith("`")]
    assert len(faults) > 10
    assert [row[0] for row in faults if not TEST.search(row[-1])] == []
