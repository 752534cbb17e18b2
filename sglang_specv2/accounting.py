"""Keeps plain steps out of SGLang's speculation statistics.

SGLang counts every decode step of a speculating server as a verify. A plain step proposes nothing:
counted, it would pull the accept length towards one and say nothing about the draft. The functions
here go around SGLang's own and are installed by the plugin (:data:`AROUND`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PLAIN_RESULT = "PlainStepResult"

LAST_REPORTED = "specv2_last_reported"
"""The attribute of SGLang's reporter that keeps (tokens, verifies) of its last report with some."""


def is_plain(result: Any) -> bool:
    """Whether a GenerationBatchResult came from a plain step. By name, so that processes which
    never decode need not import torch."""
    return type(result).__name__ == PLAIN_RESULT


def resolve_tokens(original: Callable[..., Any], processor: Any, result: Any, batch: Any) -> Any:
    """Around ``_resolve_spec_v2_tokens``: a plain step is no verify of the request."""
    plain = is_plain(result)
    processor.metrics_reporter.specv2_result_is_plain = plain
    if not plain:
        # The step that overlapped a request's last one has its row; SGLang does not count it.
        running = [None if req.is_retracted or req.finished() else req for req in batch.reqs]
        tokens = original(processor, result, batch)
        observe = getattr(processor.model_worker, "specv2_observe", None)
        if observe is not None:
            observe(running, result)
        return tokens
    counted = [
        (req, req.spec_verify_ct, list(req.spec_correct_drafts_histogram)) for req in batch.reqs
    ]
    tokens = original(processor, result, batch)
    for req, verify_count, histogram in counted:
        req.spec_verify_ct = verify_count
        req.spec_correct_drafts_histogram = histogram
    return tokens


def update_spec_metrics(
    original: Callable[..., Any], reporter: Any, *args: Any, **kwargs: Any
) -> Any:
    """Around ``update_spec_metrics``: a plain step enters no accept length of the server."""
    if getattr(reporter, "specv2_result_is_plain", False):
        return None
    return original(reporter, *args, **kwargs)


def report_decode_stats(
    original: Callable[..., Any], reporter: Any, *args: Any, **kwargs: Any
) -> Any:
    """Around ``report_decode_stats``, which divides by the verifies since the last report.

    Without any, it is lent those of the last report that had some: log and gauges keep the last
    known accept length. Before the first there is none, and one verify that accepted nothing is
    lent. The lifetime totals get back what was lent.
    """
    if reporter.scheduler.spec_algorithm.is_none():
        return original(reporter, *args, **kwargs)
    if reporter.spec_num_forward_ct:
        counted = reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct
        outcome = original(reporter, *args, **kwargs)
        if not reporter.spec_num_forward_ct:
            setattr(reporter, LAST_REPORTED, counted)
        return outcome
    totals = reporter.spec_total_num_accept_tokens, reporter.spec_total_num_forward_ct
    lent = getattr(reporter, LAST_REPORTED, (1, 1))
    reporter.spec_num_accept_tokens, reporter.spec_num_forward_ct = lent
    try:
        return original(reporter, *args, **kwargs)
    finally:
        reporter.spec_num_accept_tokens = reporter.spec_num_forward_ct = 0
        reporter.spec_total_num_accept_tokens, reporter.spec_total_num_forward_ct = totals


def request_metrics(
    original: Callable[..., Any], manager: Any, meta_info: dict[str, Any], recv_obj: Any, i: int
) -> Any:
    """Around ``_calculate_spec_decoding_metrics``: accept length over verifies only.

    SGLang divides all of a request's tokens by its verifies, which holds only if each token came
    from one. Here: accepted drafts per verify, plus the bonus token of each.
    """
    outcome = original(manager, meta_info, recv_obj, i)
    if "spec_accept_length" in meta_info:
        meta_info["spec_accept_length"] = (
            1.0 + meta_info["spec_num_correct_drafts"] / meta_info["spec_verify_ct"]
        )
    return outcome


AROUND: dict[str, Callable[..., Any]] = {
    "sglang.srt.managers.scheduler_components.batch_result_processor"
    ".SchedulerBatchResultProcessor._resolve_spec_v2_tokens": resolve_tokens,
    "sglang.srt.managers.scheduler_components.metrics_reporter"
    ".SchedulerMetricsReporter.update_spec_metrics": update_spec_metrics,
    "sglang.srt.managers.scheduler_components.metrics_reporter"
    ".SchedulerMetricsReporter.report_decode_stats": report_decode_stats,
    "sglang.srt.managers.tokenizer_manager"
    ".TokenizerManager._calculate_spec_decoding_metrics": request_metrics,
}
"""Dotted path in SGLang → the function that goes around it."""
