"""The arithmetic of report and figures, from recorded rounds and from made up, clear ones."""

import json
import re
from pathlib import Path

import pytest
import result_folders

from sglang_specv2.benchmark import figures, report
from sglang_specv2.benchmark.drawn_lengths import rate_as_asked
from sglang_specv2.benchmark.errors import ResultError
from sglang_specv2.benchmark.load import Load
from sglang_specv2.benchmark.results import RECOVERY, ROUNDS, STARTS, TIMELINE, Results
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.tables import Comparison, recovery_figures, timeline_figures

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "docs" / "measured" / "off-and-on"
SETTINGS = Settings(
    arms=("none", "stock", "threshold"),
    levels=(1, 8),
    rounds=3,
    threshold=4,
    side_by_side=True,
    timelines=(),
)
RATES = {
    "none": {1: [100, 110, 90], 8: [800, 820, 780]},
    "stock": {1: [200, 200, 200], 8: [400, 410, 390]},
    "threshold": {1: [198, 202, 200], 8: [800, 820, 780]},
}


def rows(text, title):
    """The table under a heading, by its first column."""
    under = re.split(r"^## ", text, flags=re.M)
    (found,) = [part for part in under if part.startswith(title)]
    cells = [line.strip("| ").split(" | ") for line in found.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in cells[2:]}


@pytest.fixture
def comparison(tmp_path):
    return result_folders.make(tmp_path / "result", SETTINGS, RATES)


def test_without_simulated_lengths_there_is_no_luck_to_take_out(comparison):
    assert "luck" not in report.write(comparison, [])


def test_recorded_rounds_give_these_medians_and_ratios():
    text = report.write(Comparison(Results.existing(RECORDED)), [])

    rates = rows(text, "Output tokens a second")
    assert rates["no speculation"][4] == "14001 (13812–14045)"
    assert rates["sglang-specv2, off"][0] == "1552 (1514–1560)"
    # The middle one of the five rounds, see below; the interval reaches from end to end.
    ratio = rows(text, "Ratio to no speculation")["sglang-specv2, off"][4]
    assert ratio.startswith("0.993 [0.974, 1.006]")
    assert "cross at about 27 requests" in text
    assert "DUMMY WEIGHTS; ACCEPT LENGTH SIMULATED at 2.2" in text


def test_the_recorded_ratio_is_that_of_the_recorded_lines():
    lines = map(json.loads, (RECORDED / "rounds.jsonl").read_text().splitlines())
    at_128 = {
        (line["arm"], line["round"]): line["output_tokens_s"]
        for line in lines
        if line["level"] == 128
    }
    ratios = sorted(at_128["off", r] / at_128["none", r] for r in range(5))
    assert [round(ratio, 4) for ratio in ratios] == [0.9737, 0.9754, 0.9931, 1.0034, 1.0061]


def test_rates_ratios_and_what_is_not_resolved(comparison):
    text = report.write(comparison, [])

    rates = rows(text, "Output tokens a second")
    assert rates["no speculation"] == ["100 (90–110)", "800 (780–820)"]
    ratios = rows(text, "Ratio to no speculation")
    assert ratios["EAGLE-3 always on, SGLang"] == [
        "2.000 [1.818, 2.222]",
        "0.500 [0.500, 0.500]",
    ]
    assert ratios["sglang-specv2, threshold 4"][1] == "1.000 [1.000, 1.000]"
    best = rows(text, "Ratio to the best other arm")
    assert best["sglang-specv2, threshold 4"][0].startswith("1.000 [0.990, 1.010]")
    assert best["EAGLE-3 always on, SGLang"][1].startswith("0.500")


def test_few_rounds_resolve_nothing(tmp_path):
    two = {arm: {8: levels[8][:2]} for arm, levels in RATES.items()}
    text = report.write(result_folders.make(tmp_path / "two", SETTINGS, two), [])
    assert rows(text, "Ratio to no speculation")["EAGLE-3 always on, SGLang"] == [
        "0.500 *not resolved*"
    ]
    assert "none: C=1: 0 of 3 rounds; C=8: 2 of 3 rounds" in text


def test_one_after_the_other_is_the_ratio_of_medians(tmp_path):
    settings = Settings(**{**SETTINGS.__dict__, "side_by_side": False})
    rates = {"none": {8: [10, 20, 300]}, "stock": {8: [20, 10, 300]}}
    made = result_folders.make(tmp_path / "turn", settings, rates)
    assert made.ratio("stock", "none", Load("closed", 8)).value == 1
    assert "Ratios are of medians" in report.write(made, [])


def test_a_round_that_was_measured_again_counts_once(tmp_path):
    again = [*result_folders.rounds({"none": {1: [500]}})]
    made = result_folders.make(tmp_path / "again", SETTINGS, RATES, {"rounds.jsonl": again})
    assert made.values("none", Load("closed", 1)) == {0: 500, 1: 110, 2: 90}


def test_a_failed_arm_says_so_in_its_column_and_shows_its_log(tmp_path):
    rates = {"none": RATES["none"], "stock": {1: RATES["stock"][1]}}
    failed = {
        "arm": "stock",
        "error": "stock: the server ended with status -9",
        "log_tail": "CUDA out of memory",
        "command": "python -m sglang.launch_server",
    }
    made = result_folders.make(tmp_path / "failed", SETTINGS, rates, {STARTS: [failed]})
    text = report.write(made, [])
    assert rows(text, "Output tokens a second")["EAGLE-3 always on, SGLang"][1] == "failed"
    assert "stock: the server ended with status -9. The end of its log:" in text
    assert "CUDA out of memory" in text


# 40 requests of 101 tokens, the first of each from its prefill: 4000 tokens of steps in 10 s.
IN_TEN_SECONDS = {
    "output_tokens_s": 404.0,
    "requests": 40,
    "output_tokens": 4040,
    "plain_tokens": 0,
}


@pytest.mark.parametrize(
    ("line", "as_asked"),
    [
        ({"accept_length": None}, 404.0),
        # 2000 verifies that drew 2.0: at 2.2 they are 4400 tokens.
        ({"accept_length": 2.02}, 444.0),
        ({"accept_length": 2.0, "verifies": 2000, "accepted_drafts": 2000}, 444.0),
        # Ours counts the last step too, whose tokens nobody gets.
        (
            {
                "accept_length": 2.0,
                "verifies": 2040,
                "accepted_drafts": 2040,
            },
            404 * (40 + 2040 * 2.2) / (40 + 2040 * 2.0),
        ),
        # 1000 of them, and 2000 plain steps.
        (
            {
                "accept_length": 2.0,
                "verifies": 1000,
                "accepted_drafts": 1000,
                "plain_tokens": 2000,
            },
            424.0,
        ),
    ],
)
def test_the_luck_of_the_draw_is_taken_out_of_what_verifies_gave(line, as_asked):
    assert rate_as_asked(IN_TEN_SECONDS | line, 2.2) == pytest.approx(as_asked)


def test_the_fastest_rounds_are_compared_whatever_disturbed_the_others(tmp_path):
    rates = {
        "none": {8: [400, 310, 300]},
        "stock": {8: [100, 100, 100]},
        "threshold": {8: [250, 240, 420]},
    }
    text = report.write(result_folders.make(tmp_path / "result", SETTINGS, rates), [])

    fastest = rows(text, "Fastest rounds")
    assert fastest["sglang-specv2, threshold 4"] == ["1.050"]
    assert fastest["no speculation"] == ["0.952"]


def test_a_report_on_simulated_lengths_shows_both_ratios(tmp_path):
    """Both arms took as long for their verifies; one drew 2.0 and the other 2.2."""
    settings = Settings(**{**SETTINGS.__dict__, "simulate_accept_length": 2.2})
    lines = [
        {"arm": arm, "load": "closed", "level": 8, "round": number, "requests": 0, **drawn}
        for arm, drawn in (
            ("stock", {"output_tokens_s": 220.0, "output_tokens": 2200, "accept_length": 2.2}),
            ("threshold", {"output_tokens_s": 200.0, "output_tokens": 2000, "accept_length": 2.0}),
        )
        for number in range(3)
    ]
    made = result_folders.make(tmp_path / "drawn", settings, {}, {ROUNDS: lines})
    text = report.write(made, [])

    ours = "sglang-specv2, threshold 4"
    assert rows(text, "Ratio to the best other arm")[ours][0].startswith("0.909")
    assert rows(text, "The same without the luck of the draw")[ours][0].startswith("1.000")
    assert rows(text, "Fastest rounds")[ours] == ["1.000"]


@pytest.mark.parametrize("side_by_side", [True, False])
def test_the_best_other_arm_is_the_best_as_asked_and_never_an_adaptive_one(tmp_path, side_by_side):
    """An adaptive arm's plain steps are verifies to SGLang, so what it drew is not known."""
    settings = Settings(
        **{**SETTINGS.__dict__, "simulate_accept_length": 2.2, "side_by_side": side_by_side}
    )
    lines = [
        {
            "arm": arm,
            "load": "closed",
            "level": 8,
            "round": number,
            "requests": 0,
            "output_tokens": 10 * rate,
            "output_tokens_s": rate,
            "accept_length": accept_length,
        }
        for arm, rate, accept_length in (
            ("none", 210.0, None),
            ("stock", 220.0, 2.42),
            ("adaptive-warm", 210.0, 1.0),
            ("threshold", 210.0, 2.2),
        )
        for number in range(3)
    ]
    made = result_folders.make(tmp_path / "drawn", settings, {}, {ROUNDS: lines})
    text = report.write(made, [])

    drawn = rows(text, "Ratio to the best other arm")
    as_asked = rows(text, "The same without the luck of the draw")
    ours = "sglang-specv2, threshold 4"
    assert drawn[ours][0].startswith("0.955"), "to stock, at 220"
    assert as_asked[ours][0].startswith("1.000"), "to none, at 210; stock is at 200"
    assert [arm for arm in drawn if "adaptive" in arm] != []
    assert [arm for arm in as_asked if "adaptive" in arm] == []


@pytest.mark.parametrize(
    ("changed", "settings", "told"),
    [
        ({"dummy_weights": True}, {}, "DUMMY WEIGHTS"),
        ({}, {"simulate_accept_length": 1.4}, "ACCEPT LENGTH SIMULATED at 1.4"),
        ({}, {"cpu": True}, "CPU ENGINE: ITS SPEED MEANS NOTHING"),
    ],
)
def test_every_title_tells_what_the_numbers_are_not(tmp_path, changed, settings, told):
    made = result_folders.make(
        tmp_path / "told", Settings(**{**SETTINGS.__dict__, **settings}), RATES, **changed
    )
    titles = re.findall(r"^## (.*)$", report.write(made, []), re.M)
    about_numbers = [title for title in titles if "Not measured" not in title]
    assert [title for title in about_numbers[:-1] if told not in title] == []
    assert told in figures.draw_all([made])["throughput.svg"].decode().replace("\n", " ")


def recovery_lines():
    for arm, first in (("stock", 3), ("threshold", 3), ("adaptive-cold", 1)):
        steps = [[first] * 8 + [2] * 8 for _ in range(6)]
        yield {
            "arm": arm,
            "asked_plain_tokens": 256,
            "steps": steps,
            "plain_tokens": [270] * 6,
            "merged": 1,
            "lag_steps": 2,
        }


@pytest.fixture
def recovered(tmp_path):
    settings = Settings(**{**SETTINGS.__dict__, "recovery_plain_tokens": (256,)})
    return result_folders.make(
        tmp_path / "recovery", settings, RATES, {RECOVERY: [*recovery_lines()]}
    )


def test_recovery_is_the_mean_of_the_first_steps_by_never_off(recovered):
    found = {figure.arm: figure for figure in recovery_figures(recovered)}
    assert found["stock"].ratio is None
    assert found["threshold"].ratio.value == 1
    assert found["adaptive-cold"].ratio.value == pytest.approx(1 / 3)
    assert found["adaptive-cold"].first.value == 1
    assert [step.value for step in found["adaptive-cold"].by_step] == [1] * 8 + [2] * 8
    assert (found["stock"].requests, found["stock"].merged) == (6, 1)
    assert "0.333 [0.333, 0.333]" in report.write(recovered, [])


def time_line(timeline="ramp"):
    """Two phases of four bins; in each another arm that never switches is the best."""
    rates = {"none": (100.0, 800.0), "stock": (200.0, 400.0), "threshold": (196.0, 784.0)}
    for i in range(8):
        mode = "plain" if 2 <= i < 5 else "speculative"
        line = {"timeline": timeline, "at_s": i + 0.5, "phase": i // 4, "clients": 1 + i}
        for arm, by_phase in rates.items():
            own = arm == "threshold"
            state = {"batch_size": i if own else None, "mode": mode if own else None}
            rest = {"requests": 1.0, "switches": 0 if own else None, **state}
            yield {"arm": arm, **line, "tokens_s": by_phase[i // 4], **rest}


def test_results_of_another_version_are_refused_by_name(tmp_path):
    made = result_folders.make(tmp_path / "old", SETTINGS, RATES)
    file = tmp_path / "old" / "provenance.json"
    provenance = json.loads(file.read_text())
    del provenance["settings"]["timelines"]
    file.write_text(json.dumps(provenance))

    with pytest.raises(ResultError, match="without the settings timelines"):
        Comparison(Results.existing(tmp_path / "old"))
    assert made.name == "old"


def test_a_phase_that_an_arm_has_no_bin_of_is_left_out_of_the_ratio(tmp_path):
    lines = [line for line in time_line() if (line["arm"], line["phase"]) != ("stock", 1)]
    made = result_folders.make(tmp_path / "gap", SETTINGS, RATES, {TIMELINE: lines})

    ratios = {figure.arm: figure.ratio for figure in timeline_figures(made, "ramp")}
    assert ratios == {"none": 0.5, "stock": 1.0, "threshold": 0.98}


def rounds_of(lines, number, change):
    """The lines of a time line as another round of it, with each rate changed."""
    return [line | {"round": number, "tokens_s": change(line)} for line in lines]


def test_rounds_of_a_time_line_count_together(tmp_path):
    """In the second round the two others change places in the first phase; the third was broken
    off before an arm."""
    first = [*time_line()]
    swapped = rounds_of(
        first,
        1,
        lambda line: (
            300 - line["tokens_s"]
            if line["phase"] == 0 and line["arm"] != "threshold"
            else line["tokens_s"]
        ),
    )
    third = rounds_of([line for line in first if line["arm"] != "threshold"], 2, lambda line: 9e9)
    settings = Settings(**{**SETTINGS.__dict__, "timelines": ("ramp",), "timeline_rounds": 3})
    lines = {TIMELINE: [*first, *swapped, *third]}
    made = result_folders.make(tmp_path / "rounds", settings, RATES, lines)
    found = {figure.arm: figure for figure in timeline_figures(made, "ramp")}

    # In each round another arm gave 200 in the first phase: none is better than 150 on average.
    assert found["threshold"].ratio == pytest.approx((196 + 784) / (150 + 800))
    assert found["none"].tokens_s == pytest.approx((150 + 800) / 2)
    assert {figure.rounds for figure in found.values()} == {2}
    text = report.write(made, [])
    assert "its mean over 2 rounds, those that all arms have" in text
    assert "One pass" not in text
    assert "ramp: 2 of 3 rounds" in text
    alone = result_folders.make(tmp_path / "one", settings, RATES, {TIMELINE: first})
    assert "One pass" in report.write(alone, [])
    drawn = [figures.draw_all([each])["timeline-ramp.svg"] for each in (made, alone)]
    assert drawn[0] == drawn[1], "the first round"


def test_over_time_copies_of_ours_are_no_rivals_of_ours(tmp_path):
    """The best of more is better by chance; but where there is nothing else, they are."""
    ours = [line | {"arm": "off", "tokens_s": 900.0} for line in time_line()]
    settings = Settings(**{**SETTINGS.__dict__, "timelines": ("ramp",)})

    def ratio(lines):
        made = result_folders.make(tmp_path / str(len(lines)), settings, RATES, {TIMELINE: lines})
        return {figure.arm: figure.ratio for figure in timeline_figures(made, "ramp")}["threshold"]

    assert ratio([*time_line(), *ours]) == pytest.approx(0.98)
    lone = [line for line in time_line() if line["arm"] == "threshold"]
    assert ratio([*lone, *ours]) == pytest.approx((196 + 784) / 1800)


def test_a_folder_from_before_a_time_line_had_rounds_is_read(tmp_path):
    settings = Settings(**{**SETTINGS.__dict__, "timelines": ("ramp",)})
    result_folders.make(tmp_path / "old", settings, RATES, {TIMELINE: [*time_line()]})
    file = tmp_path / "old" / "provenance.json"
    provenance = json.loads(file.read_text())
    del provenance["settings"]["timeline_rounds"]
    file.write_text(json.dumps(provenance))

    assert "One pass" in report.write(Comparison(Results.existing(tmp_path / "old")), [])


def test_over_time_an_arm_is_compared_with_the_best_of_each_phase(tmp_path):
    settings = Settings(**{**SETTINGS.__dict__, "timelines": ("ramp", "square")})
    made = result_folders.make(tmp_path / "time", settings, RATES, {TIMELINE: [*time_line()]})
    text = report.write(made, [])

    found = rows(text, "Over time: a ramp")
    assert found["no speculation"] == ["450", "0.900"]
    assert found["EAGLE-3 always on, SGLang"] == ["300", "0.600"]
    assert found["sglang-specv2, threshold 4"] == ["490", "0.980"]
    assert "Over time: a square wave" not in text
    assert "no square wave" in text, "it was asked for"
    assert "no ramp" not in text


def test_all_pictures_are_drawn_and_the_same_every_time(tmp_path):
    settings = Settings(
        **{**SETTINGS.__dict__, "recovery_plain_tokens": (256,), "timelines": ("ramp",)}
    )
    over_time = [*time_line("ramp"), *time_line("square")]
    lines = {RECOVERY: [*recovery_lines()], TIMELINE: over_time}
    made = result_folders.make(tmp_path / "all", settings, RATES, lines)
    drawn = figures.draw_all([made])
    names = ("throughput", "timeline-ramp", "timeline-square", "recovery")
    assert set(drawn) == {f"{name}.{form}" for name in names for form in ("svg", "png")}
    assert drawn == figures.draw_all([made])
    svg = {name: drawn[f"{name}.svg"].decode() for name in names}
    assert "cross at about" in svg["throughput"]
    assert "threshold does not speculate" in svg["timeline-ramp"]
    assert "after 256 tokens without" in svg["recovery"]
    assert "never off (SGLang)" in svg["recovery"]
    assert all(drawn[f"{name}.png"].startswith(b"\x89PNG") for name in names)


def test_several_runs_lie_over_each_other(tmp_path, comparison):
    other = result_folders.make(tmp_path / "other", SETTINGS, {"none": RATES["none"]})
    svg = figures.draw_all([comparison, other])["throughput.svg"].decode()
    assert "no speculation (result)" in svg
    assert "no speculation (other)" in svg
