"""SGLang's statistics around stand-ins that count as SGLang's own functions do."""

from types import SimpleNamespace

import pytest

from sglang_specv2 import accounting


class PlainStepResult:
    """Told from a verify by the name of its type."""

    num_correct_drafts_per_req_cpu = (0, 0)


class VerifyResult:
    num_correct_drafts_per_req_cpu = (2, 0)
    speculative_num_draft_tokens = 3


class Processor:
    def __init__(self):
        self.observed = []
        self.metrics_reporter = SimpleNamespace()
        self.model_worker = SimpleNamespace(specv2_observe=self.observe)

    def observe(self, *outcome):
        self.observed.append(outcome)


def request(verify_count, histogram, *, retracted=False, finished=False):
    return SimpleNamespace(
        spec_verify_ct=verify_count,
        spec_correct_drafts_histogram=histogram,
        is_retracted=retracted,
        finished=lambda: finished,
    )


def requests():
    return [request(3, [1, 2]), request(0, [])]


def resolve(processor, result, batch):
    """As SGLang: every result is a verify of every request."""
    for request, drafts in zip(batch.reqs, result.num_correct_drafts_per_req_cpu, strict=True):
        request.spec_verify_ct += 1
        histogram = request.spec_correct_drafts_histogram
        histogram.extend([0] * (drafts + 1 - len(histogram)))
        histogram[drafts] += 1
    return ["tokens"]


def test_a_verify_counts_and_is_observed():
    processor, batch = Processor(), SimpleNamespace(reqs=requests())

    result = VerifyResult()
    assert accounting.resolve_tokens(resolve, processor, result, batch) == ["tokens"]

    assert [request.spec_verify_ct for request in batch.reqs] == [4, 1]
    assert [r.spec_correct_drafts_histogram for r in batch.reqs] == [[1, 2, 1], [1]]
    assert processor.observed == [(batch.reqs, result)]


@pytest.mark.parametrize("ended", ["retracted", "finished"])
def test_rows_of_requests_that_had_ended_are_not_observed(ended):
    running, over = request(3, [1, 2]), request(0, [], **{ended: True})
    processor, batch = Processor(), SimpleNamespace(reqs=[over, running])

    result = VerifyResult()
    accounting.resolve_tokens(resolve, processor, result, batch)

    assert processor.observed == [([None, running], result)]


def test_a_plain_step_is_no_verify():
    processor, batch = Processor(), SimpleNamespace(reqs=requests())

    assert accounting.resolve_tokens(resolve, processor, PlainStepResult(), batch) == ["tokens"]

    assert [request.spec_verify_ct for request in batch.reqs] == [3, 0]
    assert [r.spec_correct_drafts_histogram for r in batch.reqs] == [[1, 2], []]
    assert processor.observed == []


@pytest.mark.parametrize(("result", "counted"), [(VerifyResult(), [5]), (PlainStepResult(), [])])
def test_the_servers_metrics_skip_plain_steps(result, counted):
    processor, batch = Processor(), SimpleNamespace(reqs=requests())
    accounting.resolve_tokens(resolve, processor, result, batch)
    seen = []

    accounting.update_spec_metrics(
        lambda reporter, rows: seen.append(rows), processor.metrics_reporter, 5
    )

    assert seen == counted


class Reporter:
    """Divides by the verifies since the last report, as SGLang does."""

    def __init__(self, tokens, verifies, speculates=True):
        algorithm = SimpleNamespace(is_none=lambda: not speculates)
        self.scheduler = SimpleNamespace(spec_algorithm=algorithm)
        self.spec_num_accept_tokens, self.spec_num_forward_ct = tokens, verifies
        self.spec_total_num_accept_tokens = self.spec_total_num_forward_ct = 100
        self.reported = []

    def report(self):
        if not self.scheduler.spec_algorithm.is_none():
            self.reported.append(self.spec_num_accept_tokens / self.spec_num_forward_ct)
            self.spec_total_num_accept_tokens += self.spec_num_accept_tokens
            self.spec_total_num_forward_ct += self.spec_num_forward_ct
            self.spec_num_accept_tokens = self.spec_num_forward_ct = 0


def totals(reporter):
    return reporter.spec_total_num_accept_tokens, reporter.spec_total_num_forward_ct


def test_a_report_without_verifies_divides_by_nothing_and_adds_nothing():
    reporter = Reporter(0, 0)

    accounting.report_decode_stats(Reporter.report, reporter)

    assert totals(reporter) == (100, 100)
    assert (reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct) == (0, 0)


def test_a_report_without_verifies_repeats_the_last_that_had_some():
    reporter = Reporter(0, 0)
    accounting.report_decode_stats(Reporter.report, reporter)
    reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct = 10, 4
    for _ in range(3):
        accounting.report_decode_stats(Reporter.report, reporter)

    assert reporter.reported == [1.0, 2.5, 2.5, 2.5]
    assert totals(reporter) == (110, 104)


def test_between_two_reports_nothing_is_taken_for_one():
    """SGLang calls it at every step and reports at every log interval."""
    reporter = Reporter(10, 4)

    accounting.report_decode_stats(lambda reporter: None, reporter)
    assert (reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct) == (10, 4)
    reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct = 0, 0
    accounting.report_decode_stats(Reporter.report, reporter)

    assert reporter.reported == [1.0]


def test_a_report_that_raises_leaves_nothing_lent():
    reporter = Reporter(0, 0)

    def fails(reporter):
        raise RuntimeError("no log")

    with pytest.raises(RuntimeError, match="no log"):
        accounting.report_decode_stats(fails, reporter)

    assert totals(reporter) == (100, 100)
    assert (reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct) == (0, 0)


def test_a_report_with_verifies_is_sglangs():
    reporter = Reporter(10, 4)

    accounting.report_decode_stats(Reporter.report, reporter)

    assert reporter.reported == [2.5]
    assert totals(reporter) == (110, 104)


def test_a_server_that_does_not_speculate_is_left_alone():
    reporter = Reporter(0, 0, speculates=False)

    accounting.report_decode_stats(Reporter.report, reporter)

    assert reporter.reported == []


def test_a_requests_accept_length_is_over_its_verifies():
    """SGLang's is completion tokens over verifies: 40 / 5 for a request that was mostly off."""

    def original(manager, meta_info, received, i):
        meta_info.update(spec_verify_ct=5, spec_num_correct_drafts=7, spec_accept_length=40 / 5)

    meta_info = {}
    accounting.request_metrics(original, None, meta_info, None, 0)

    assert meta_info["spec_accept_length"] == pytest.approx(1 + 7 / 5)


def test_a_request_without_verifies_gets_no_accept_length():
    meta_info = {"completion_tokens": 9}
    accounting.request_metrics(lambda *args: None, None, meta_info, None, 0)

    assert meta_info == {"completion_tokens": 9}
