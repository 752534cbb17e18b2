"""After a step: SGLang's counts and gauges of speculation, and the state of a running server."""

from sglang_specv2.seams.seam import Seam, members

_COUNTS = "SGLang counts every decode step of a speculating server as a verify"
_COUNT_API = "SGLang's counts know steps that are no verify"
_STATE_API = "a worker can add to /server_info"

_PROCESSOR = "sglang.srt.managers.scheduler_components.batch_result_processor"
_REPORTER = "sglang.srt.managers.scheduler_components.metrics_reporter.SchedulerMetricsReporter"
_REQUEST = "sglang.srt.managers.schedule_batch.Req"
_TOKENIZER = "sglang.srt.managers.tokenizer_manager.TokenizerManager"
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"

SEAMS: tuple[Seam, ...] = (
    *members(
        f"{_PROCESSOR}.SchedulerBatchResultProcessor",
        {
            "_resolve_spec_v2_tokens": (
                "(self, result, batch)",
                "where a result becomes tokens and counts of its requests",
            ),
            "metrics_reporter": ("attribute", "is told which results are plain"),
            "model_worker": ("attribute", "our worker, which learns what was accepted"),
        },
        why=_COUNTS,
        until=_COUNT_API,
    ),
    *members(
        _REPORTER,
        {
            "update_spec_metrics": ("(self, bs, ...)", "left out for a plain step"),
            "report_decode_stats": (
                "(self, can_run_cuda_graph, running_batch, ...)",
                "divides by the verifies since the last report",
            ),
            "scheduler": ("attribute", "does this server speculate"),
            "spec_num_forward_ct": ("attribute", "verifies since the last report"),
            "spec_num_accept_tokens": ("attribute", "their tokens"),
            "spec_total_num_forward_ct": ("attribute", "verifies since the start"),
            "spec_total_num_accept_tokens": ("attribute", "their tokens"),
        },
        why=_COUNTS,
        until=_COUNT_API,
    ),
    *members(
        _REQUEST,
        {
            "spec_verify_ct": ("attribute", "verifies of a request"),
            "spec_correct_drafts_histogram": ("attribute", "what they accepted"),
            "is_retracted": ("attribute", "rows whose outcome SGLang does not count"),
            "finished": ("(self)", "rows whose outcome SGLang does not count"),
        },
        why=_COUNTS,
        until=_COUNT_API,
    ),
    Seam(
        f"{_TOKENIZER}._calculate_spec_decoding_metrics",
        "(self, meta_info, recv_obj, i)",
        "a request's accept length, from spec_num_correct_drafts and spec_verify_ct of meta_info",
        _COUNTS,
        _COUNT_API,
    ),
    *members(
        _SCHEDULER,
        {
            "get_internal_state": ("(self, recv_req)", "what /server_info says of a scheduler"),
            "draft_worker": ("attribute", "our worker, whose state is added"),
        },
        why="the one place where a scheduler describes itself to clients",
        until=_STATE_API,
    ),
    Seam(
        "sglang.srt.managers.io_struct.GetInternalStateReqOutput.internal_state",
        "attribute",
        "takes our state as one more key",
        "the one place where a scheduler describes itself to clients",
        _STATE_API,
    ),
    *members(
        _SCHEDULER,
        {"spec_algorithm": ("attribute", "does this server speculate")},
        why=_COUNTS,
        until=_COUNT_API,
    ),
    Seam(
        "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.is_none",
        "(self)",
        "does this server speculate",
        _COUNTS,
        _COUNT_API,
    ),
)
