"""Policy auto on a real server: its start, its tiers, and what operators see and change of it."""

import random
import re

import pytest
import requests
from worker_scenarios import Request, of_many_lengths, random_runs, serve

from sglang_specv2.cli.main import main
from sglang_specv2.metrics import NAMES
from sglang_specv2.policy.control import CODES

AUTO = ("--speculative-dynamic", "auto", "--speculative-step-choices", "0,1,2")


@pytest.fixture(scope="module")
def server(start_probed, tmp_path_factory):
    calibration = tmp_path_factory.mktemp("calibration") / "here.json"
    server = start_probed(
        *AUTO,
        "--enable-metrics",
        *("--max-running-requests", "24"),
        env={"SGLANG_SPECV2_CALIBRATION_OUT": str(calibration)},
    )
    server.calibration = calibration
    return server


@pytest.fixture(autouse=True)
def _as_it_was(server):
    yield
    server.wait_until_idle()
    server.schedule("")
    assert change(server, dynamic=CODES["auto"], switch_margin=0.02).status_code == 200


def change(server, **values):
    body = {"server_args": {f"speculative_{name}": value for name, value in values.items()}}
    return requests.post(f"{server.url}/set_internal_state", json=body, timeout=30)


def metrics(server):
    """Value of every sample whose name is ours, by the sample as it is written."""
    lines = re.findall(r"^(sglang:spec_dynamic_\S+) (\S+)$", server.get("/metrics"), re.M)
    return {sample: float(value) for sample, value in lines}


def total(server, name, *labels):
    return sum(
        value
        for sample, value in metrics(server).items()
        if sample.startswith(f"sglang:spec_dynamic_{name}_total{{")
        and all(label in sample for label in labels)
    )


def test_it_measured_and_leaves_no_trace_of_it(server, texts):
    status = server.state()
    assert status["policy"] == "auto"
    assert status["auto"]["step_choices"] == [0, 1, 2]
    assert sum(status["steps"].values()) < 20, "but for what SGLang warms up with"
    outcome = serve(server, [Request(text, 60) for text in texts[:4]], "")
    assert outcome.wrong_tokens() == []
    assert "Timed both modes in" in server.log.read_text()


@pytest.mark.parametrize("runs", ["2s 2s1", "1s1 1p", "3s 1s1 2p", "1s1 17p 4s"])
def test_tiers_of_draft_steps_change_no_token(server, texts, runs):
    outcome = serve(server, of_many_lengths(texts, 30, 90), runs, apart_s=0.02)

    assert outcome.wrong_tokens() == []
    assert {step.stride for step in outcome.steps} >= {2}
    accepts = {}
    for step in outcome.steps:
        for row in step.rows if step.speculative else ():
            predicted = outcome.requests[row.rid].text.draft.accepted
            if row.position < len(predicted) and predicted[row.position] is not None:
                expected = min(predicted[row.position], step.stride)
                accepts.setdefault(step.stride, []).append(row.accepted == expected)
    assert len(accepts[2]) >= 10
    assert "Switch adaptive runtime state" not in server.log.read_text(), "a line for each swap"
    swaps = server.get("/server_info")["internal_states"][0]
    assert swaps["speculative_num_steps"] in (1, 2)
    assert all(map(all, accepts.values()))


def test_it_decides_by_itself_and_says_why(server, texts):
    server.new_steps()
    outcome = serve(server, of_many_lengths(texts, 60, 200), "")
    outcome_tokens = outcome.wrong_tokens()

    assert outcome_tokens == []
    auto = server.state()["auto"]
    assert 0.1 < auto["estimated_speed_up"] < 10


def test_thresholds_are_changed_while_it_serves(server, texts):
    assert change(server, disable_batch_threshold=3, switch_min_dwell=1).json() == [True]
    assert server.state()["settings"] == {
        "dynamic": "threshold",
        "disable_batch_threshold": 3,
        "enable_batch_threshold": 2,
        "switch_min_dwell": 1,
    }
    outcome = serve(server, [Request(text, 60) for text in texts[:6]], "")
    outcome.require_right()
    assert {step.speculative for step in outcome.steps if len(step.rows) > 3} == {False}
    assert metrics(server)[sample(server, "disable_batch_threshold")] == 3


def sample(server, name):
    (found,) = [s for s in metrics(server) if s.startswith(f"sglang:spec_dynamic_{name}{{")]
    return found


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"disable_batch_threshold": 0}, "at least 1, got 0"),
        ({"disable_batch_threshold": 24}, "is never crossed"),
        ({"dynamic": 9}, "expected one of 0 (never)"),
        ({"switch_margin": 7}, "a number from 0 to 1, got 7"),
        ({"draft_sync": 1}, None),
    ],
)
def test_a_wrong_value_is_answered_with_the_reason(server, values, words):
    before = server.state()["settings"]
    answer = change(server, **values)
    if words is None:  # Not ours: SGLang's own refusal.
        assert answer.json() == [False]
    else:
        assert answer.status_code == 400
        assert words in answer.text
    assert server.state()["settings"] == before


def test_our_keys_go_with_sglangs(server):
    body = {"server_args": {"pp_max_micro_batch_size": 8, "speculative_switch_margin": 0.5}}
    answer = requests.post(f"{server.url}/set_internal_state", json=body, timeout=30)
    assert answer.json() == [True]
    info = server.get("/server_info")["internal_states"][0]
    assert info["pp_max_micro_batch_size"] == 8
    assert info["speculative_dynamic_state"]["settings"]["switch_margin"] == 0.5


def test_a_refusal_changes_nothing_of_sglangs_and_is_told_once(server):
    before = server.get("/server_info")["internal_states"][0]["pp_max_micro_batch_size"]
    both = {"pp_max_micro_batch_size": before - 1, "speculative_switch_margin": 7}
    url = f"{server.url}/set_internal_state"
    assert requests.post(url, json={"server_args": both}, timeout=30).status_code == 400
    info = server.get("/server_info")["internal_states"][0]
    assert info["pp_max_micro_batch_size"] == before
    assert "got 7" in info["speculative_dynamic_refusal"]

    theirs_is_wrong = {"no_such_key": 1, "speculative_switch_margin": 0.3}
    answer = requests.post(url, json={"server_args": theirs_is_wrong}, timeout=30)
    assert answer.json() == [False]
    assert server.state()["settings"]["switch_margin"] == 0.02


def test_the_commands(server, capsys):
    url = ("--url", server.url)
    assert main(["set", *url, "--policy", "never"]) == 0
    assert "policy        never" in capsys.readouterr().out
    assert main(["status", *url]) == 0
    assert "policy        never" in capsys.readouterr().out
    assert main(["set", *url, "--disable-batch-threshold", "99"]) == 2
    assert "is never crossed" in capsys.readouterr().err
    assert main(["set", *url]) == 2
    assert "got nothing" in capsys.readouterr().err
    assert main(["set", *url, "--switch-margin", "nan"]) == 2
    assert "expected a number from 0 to 1, got nan" in capsys.readouterr().err
    assert main(["set", *url, "--switch-margin", "0.07"]) == 0
    assert "switch margin 0.07" in capsys.readouterr().out
    assert main(["status", "--url", "http://127.0.0.1:9"]) == 2
    assert "expected a server" in capsys.readouterr().err


def test_requests_opt_out(server, texts):
    out = {"custom_params": {"speculative": False}}
    assert change(server, dynamic=CODES["always"]).status_code == 200
    serve(server, [Request(texts[0], 30)], "").require_right()
    outcome = serve(server, [Request(text, 40) for text in texts[:3]], "", **out)
    outcome.require_right()
    assert {step.speculative for step in outcome.steps} == {False}
    assert total(server, "switches", 'reason="opt_out"') >= 1


def test_metrics_add_up_and_survive_scrapes_between_switches(server, texts):
    names = "steps", "tokens", "switches", "verifies", "accepted_drafts"
    before = {name: total(server, name) for name in names}
    outcome = serve(server, of_many_lengths(texts, 40, 120), random_runs(3, 4))
    server.wait_until_idle()
    outcome.require_right()

    assert total(server, "steps") - before["steps"] >= len(outcome.steps)
    tokens = sum(row.accepted for step in outcome.steps for row in step.rows)
    assert total(server, "tokens") - before["tokens"] >= tokens
    assert total(server, "switches") - before["switches"] >= outcome.switches()
    told = [answer.meta for answer in outcome.answers.values()]
    for name, of_request in (
        ("verifies", "spec_verify_ct"),
        ("accepted_drafts", "spec_num_correct_drafts"),
    ):
        counted = sum(meta.get(of_request, 0) for meta in told)
        assert total(server, name) - before[name] == counted > 0
    assert 0 <= metrics(server)[sample(server, "accept_rate")] <= 1
    written = {re.match(r"[^{]+", s)[0] for s in metrics(server)}
    assert written <= set(NAMES)
    assert len(written) > 10


def test_a_calibration_is_used_in_place_of_measuring(server, start_server, trained_pair, texts):
    other = start_server(
        *trained_pair,
        arguments=[
            *AUTO,
            *("--max-running-requests", "24"),
            *("--speculative-calibration", str(server.calibration)),
        ],
    )
    assert "Timed both modes" not in other.log.read_text()
    (answer,) = other.generate([texts[0].prompt], max_new_tokens=30)
    assert answer.token_ids == texts[0].answer[:30]
    assert other.state()["policy"] == "auto"


def test_two_ranks_decide_alike(start_probed, texts):
    """Random loads and changes of the policy; each rank has its own estimates."""
    server = start_probed(*AUTO, "--tp-size", "2", *("--max-running-requests", "24"))
    rng = random.Random(11)
    server.schedule("")
    mine, theirs = [], []
    for round_number in range(40):
        waiting = [
            server.submit(rng.choice(texts).prompt, max_new_tokens=rng.randint(5, 60))
            for _ in range(rng.randint(1, 8))
        ]
        if round_number == 10:
            assert change(server, disable_batch_threshold=3, switch_min_dwell=2).ok
        if round_number == 20:
            assert change(server, switch_margin=0.0).ok
        if round_number == 15:
            refused = change(server, disable_batch_threshold=24)
            assert refused.status_code == 400
            assert "is never crossed" in refused.text
        for future in waiting:
            future.result()
        mine += [step for step in server.new_steps(0) if step.rows]
        theirs += [step for step in server.new_steps(1) if step.rows]
        if len(mine) >= 500 and round_number > 25:
            break
    assert len(mine) >= 500
    assert mine == theirs
    assert server.state()["auto"]["step_time_factors"], "rank 0's are in force on both"
    assert {step.speculative for step in mine} == {True, False}
