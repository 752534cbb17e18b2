"""Statistics of a server and of its requests: plain steps enter no accept length."""

import re
import threading
import time

import pytest
from worker_scenarios import Request, of_many_lengths, serve

from sglang_specv2.draft_sync.proposals import NAN_CHECK_STEPS

COUNTS = ("verifies", "accepted_drafts", "plain_tokens", "resumes", "nan_drafts")


def gauge(server, name):
    line = re.search(rf"^sglang:{name}\{{.*\}} (\S+)$", server.get("/metrics"), re.M)
    return float(line[1])


def last_position(request):
    """Of its last token; with overlap a step may come after it."""
    return len(request.prompt) + request.tokens - 1


def test_a_requests_accept_length_is_over_its_verifies(server, texts, runs):
    outcome = serve(server, [Request(text, 60) for text in texts[:2]], runs)
    outcome.require_right()
    for rid, request in outcome.requests.items():
        meta = outcome.answers[rid].meta
        drafts = [
            row.accepted - 1
            for step in outcome.steps
            for row in step.rows
            if step.speculative and row.rid == rid and row.position < last_position(request)
        ]
        assert meta["completion_tokens"] == 60
        if not drafts:
            assert "spec_accept_length" not in meta, "never drafted for"
            continue
        assert meta["spec_verify_ct"] == len(drafts)
        assert meta["spec_accept_length"] == pytest.approx(1 + sum(drafts) / len(drafts))
        assert meta["spec_accept_rate"] == pytest.approx(sum(drafts) / (2 * len(drafts)))
        histogram = [drafts.count(n) for n in range(max(drafts) + 1)]
        assert meta["spec_correct_drafts_histogram"] == histogram


def test_the_state_counts_what_happened(server, texts, runs):
    before = server.state()
    outcome = serve(server, [Request(text, 40) for text in texts[:3]], runs)
    server.wait_until_idle()
    after = server.state()

    rows = {True: [], False: []}
    for step in outcome.steps:
        rows[step.speculative] += step.rows
    verified = [
        row for row in rows[True] if row.position < last_position(outcome.requests[row.rid])
    ]
    gained = {name: after[name] - before[name] for name in COUNTS}
    assert gained == {
        "verifies": len(verified),
        "accepted_drafts": sum(row.accepted - 1 for row in verified),
        "plain_tokens": len(rows[False]),
        "resumes": sum(step.resumed for step in outcome.steps),
        "nan_drafts": 0,
    }
    for family in {step.family for step in outcome.steps}:
        ran = sum(step.family == family for step in outcome.steps)
        assert after["steps"][family] - before["steps"].get(family, 0) == ran
    switched = sum(after["switches"].values()) - sum(before["switches"].values())
    assert outcome.switches() <= switched <= outcome.switches() + 1
    if after["verifies"]:
        length = 1 + after["accepted_drafts"] / after["verifies"]
        assert after["accept_length"] == pytest.approx(length)
    assert after["mode"] == ("speculative" if outcome.steps[-1].speculative else "plain")
    assert after["draft_sync"] == "kv"
    assert after["batch_size"] >= 1
    assert after["capture_failures"] == []


def test_the_servers_accept_length_is_over_all_verifies(server, texts):
    server.wait_until_idle()  # SGLang starts its average anew
    outcome = serve(server, [Request(texts[0], 60)], "9s 9p")
    info = server.get("/server_info")["internal_states"][0]

    rows = [row for step in outcome.steps for row in step.rows if step.speculative]
    expected = sum(row.accepted for row in rows) / len(rows)
    assert info["avg_spec_accept_length"] == pytest.approx(expected)
    assert expected > 1.5


def test_the_gauges_keep_their_last_value_while_off(server, texts):
    """The server reports at every step; an interval of plain steps has no accept length."""
    outcome = serve(server, [Request(texts[0], 120)], "8s 400p")
    last = [step for step in outcome.steps if step.speculative][-1].rows[0].accepted
    length, rate = gauge(server, "spec_accept_length"), gauge(server, "spec_accept_rate")

    assert not outcome.steps[-1].speculative
    assert last > 1, "pick another text: one token a verify would look like none"
    assert length == pytest.approx(last)
    assert rate == pytest.approx((last - 1) / 2)


def test_scrapes_between_switches(server, texts):
    """Scraped all the while, at whatever step: every answer whole, no counter ever falls."""
    answers, stop = [], threading.Event()

    def scrape():
        while not stop.is_set():
            answers.append((server.state(), server.get("/metrics")))

    scraper = threading.Thread(target=scrape)
    scraper.start()
    try:
        before = time.monotonic()
        for _ in range(2):
            serve(server, of_many_lengths(texts, 20, 90), "1s 1p", apart_s=0.02).require_right()
        took_s = time.monotonic() - before
    finally:
        stop.set()
        scraper.join()

    assert len(answers) > 10, f"in {took_s} s"
    states = [counted for counted, _ in answers]
    assert {counted["mode"] for counted in states} == {"speculative", "plain"}
    for name in COUNTS:
        values = [counted[name] for counted in states]
        assert values == sorted(values), name
    for field in ("steps", "switches"):
        totals = [sum(counted[field].values()) for counted in states]
        assert totals == sorted(totals)
        assert len(set(totals)) > 5, "scraped while it switched"
    for _, metrics in answers:
        for value in re.findall(r"^sglang:spec_accept_rate\{.*\} (\S+)$", metrics, re.M):
            assert 0 <= float(value) <= 1
        for value in re.findall(r"^sglang:spec_accept_length\{.*\} (\S+)$", metrics, re.M):
            assert 1 <= float(value) <= 3


def test_a_draft_that_computes_nan_changes_no_token_and_is_counted(server, texts, runs):
    server.plant("nan_in_the_draft")
    before = server.state()
    outcome = serve(server, of_many_lengths(texts[:6], 30, 60), runs)
    after = server.state()
    server.plant("")

    assert outcome.wrong_tokens() == []
    counted = after["nan_drafts"] - before["nan_drafts"]
    verified = after["verifies"] - before["verifies"]
    assert (counted > 0) == (verified > 0)
    # A prefill's proposal is not what the fault breaks, so each request's first may be sound; and
    # of steps one in so many is looked at, of at most six requests.
    assert (verified - 6) / NAN_CHECK_STEPS - 6 <= counted <= verified / NAN_CHECK_STEPS + 6
    if verified:
        assert server.log.read_text().count("The draft computes NaN") == 1
    server.wait_until_idle()
    server.schedule("2s 2p")
    assert server.generate([texts[7].prompt])[0].token_ids == texts[7].answer[:32]
