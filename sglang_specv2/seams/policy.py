"""The policy: timing steps at start, several numbers of draft steps, live control, metrics."""

from sglang_specv2.seams.seam import Seam, members

_TIMED = "steps are timed on a batch that looks like the scheduler's"
_TIMING_API = "SGLang times its own steps, or makes up a batch for a plugin"
_TIERS = "SGLang builds and swaps everything that depends on the number of draft steps"
_TIERS_API = "the policy is a plugin of SGLang's own adaptation"
_CONTROL = "the one place where a running server takes new settings"
_CONTROL_API = "a plugin can answer /set_internal_state"
_METRICS = "our metrics have SGLang's labels and begin with SGLang's"
_METRICS_API = "a plugin can add to /metrics"

_WORKER = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2"
_DRAFT_WORKER = "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker"
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
_REQUEST = "sglang.srt.managers.schedule_batch.Req"
_SAMPLING = "sglang.srt.sampling.sampling_batch_info.SamplingBatchInfo"
_ALLOCATOR = "sglang.srt.mem_cache.allocator.base.BaseTokenToKVPoolAllocator"
_STATE = "sglang.srt.speculative.adaptive_runtime_state.SpecRuntimeState"
_SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
_CONTROL_MIXIN = "sglang.srt.managers.tokenizer_control_mixin.TokenizerControlMixin"
_REPORTER = "sglang.srt.managers.scheduler_components.metrics_reporter.SchedulerMetricsReporter"
_COLLECTOR = "sglang.srt.observability.metrics_collector.SchedulerMetricsCollector"

_CALIBRATION = (
    *members(
        _BATCH,
        dict.fromkeys(
            (
                "device",
                "enable_overlap",
                "model_config",
                "orig_seq_lens",
                "sampling_info",
                "spec_algorithm",
                "token_to_kv_pool_allocator",
            ),
            ("attribute", "of the batch that is made up"),
        ),
        why=_TIMED,
        until=_TIMING_API,
    ),
    Seam(_SAMPLING, "class", "greedy sampling of that batch", _TIMED, _TIMING_API),
    *members(
        _SAMPLING,
        dict.fromkeys(
            (
                "temperatures",
                "top_ps",
                "top_ks",
                "min_ps",
                "is_all_greedy",
                "is_any_greedy",
                "need_top_p_sampling",
                "need_top_k_sampling",
                "need_min_p_sampling",
                "vocab_size",
                "device",
            ),
            ("attribute", "greedy sampling of that batch"),
        ),
        why=_TIMED,
        until=_TIMING_API,
    ),
    *members(
        _ALLOCATOR,
        {
            "size": ("attribute", "how many KV slots there are"),
            "page_size": ("attribute", "how they lie together"),
            "get_kvcache": ("(self)", "are there slots before the capture"),
        },
        why=_TIMED,
        until=_TIMING_API,
    ),
    *members(
        _WORKER,
        {
            "token_to_kv_pool_allocator": ("attribute", "the KV slots that are used"),
            "speculative_algorithm": ("attribute", "of the batch that is made up"),
            "speculative_num_steps": ("attribute", "draft steps of a verify"),
            "ps": ("attribute", "which rank this is"),
        },
        why=_TIMED,
        until=_TIMING_API,
    ),
    Seam(
        "sglang.srt.configs.model_config.ModelConfig.quantization",
        "attribute",
        "what a calibration is of",
        _TIMED,
        _TIMING_API,
    ),
    Seam(
        "sglang.srt.configs.model_config.ModelConfig.context_len",
        "attribute",
        "how long a request can be",
        _TIMED,
        _TIMING_API,
    ),
    *members(
        "sglang.srt.distributed.parallel_state_wrapper.ParallelState",
        {
            "tp_rank": ("attribute", "whose times count"),
            "tp_size": ("attribute", "over how many GPUs they were measured"),
        },
        why=_TIMED,
        until=_TIMING_API,
    ),
    Seam(
        "sglang.srt.distributed.parallel_state.GroupCoordinator.broadcast_object",
        "(self, obj, src)",
        "all ranks get the same times",
        _TIMED,
        _TIMING_API,
    ),
    Seam(
        "sglang.srt.server_args.prepare_server_args",
        "(argv)",
        "`calibrate` takes the flags of `serve`",
        _TIMED,
        _TIMING_API,
    ),
)

_STEP_TIERS = (
    Seam(_STATE, "class", "all that depends on the number of draft steps", _TIERS, _TIERS_API),
    *members(
        _STATE,
        dict.fromkeys(
            (
                "speculative_num_steps",
                "speculative_num_draft_tokens",
                "draft_attn_backend",
                "cuda_graph_runner",
                "target_attn_backend",
                "target_graph_runner",
                "draft_extend_attn_backend",
                "cuda_graph_runner_for_draft_extend",
            ),
            ("attribute", "of what the server was started with"),
        ),
        why=_TIERS,
        until=_TIERS_API,
    ),
    *members(
        _DRAFT_WORKER,
        {
            "draft_attn_backend": ("attribute", "of what the server was started with"),
            "cuda_graph_runner": ("attribute", "of what the server was started with"),
        },
        why=_TIERS,
        until=_TIERS_API,
    ),
    *members(
        _WORKER,
        {
            "build_adaptive_runtime_state": (
                "(self, speculative_num_steps, speculative_num_draft_tokens, ...)",
                "captures one number of draft steps",
            ),
            "apply_runtime_state": ("(self, state)", "puts one in"),
        },
        why=_TIERS,
        until=_TIERS_API,
    ),
    *members(
        "sglang.srt.runtime_context",
        {
            "get_context": ("()", "where each swap is noted"),
            "RuntimeContext._overrides_log": ("attribute", "keeps the last swap only"),
        },
        why="a swap is noted for ever, and a policy swaps often",
        until=_TIERS_API,
    ),
)

_LIVE = (
    Seam(
        f"{_SCHEDULER}.set_internal_state",
        "(self, recv_req)",
        "takes our keys beside SGLang's, on every rank",
        _CONTROL,
        _CONTROL_API,
    ),
    *members(
        _CONTROL_MIXIN,
        {
            "set_internal_state": ("(self, obj)", "answers a refusal with its reason"),
            "get_internal_state": ("(self)", "asks for the reason"),
        },
        why=_CONTROL,
        until=_CONTROL_API,
    ),
    *members(
        "sglang.srt.managers.io_struct",
        {
            "SetInternalStateReq.server_args": ("attribute", "the keys and numbers asked for"),
            "SetInternalStateReqOutput": ("class", "the answer"),
            "SetInternalStateReqOutput.updated": ("attribute", "whether it was done"),
        },
        why=_CONTROL,
        until=_CONTROL_API,
    ),
    *members(
        _REQUEST,
        {
            "seqlen": ("property", "tokens that a request holds"),
            "sampling_params": ("attribute", "where a request opts out"),
        },
        why="what the policy decides from",
        until=_TIERS_API,
    ),
    Seam(
        "sglang.srt.sampling.sampling_params.SamplingParams.custom_params",
        "attribute",
        "where a request opts out",
        "what the policy decides from",
        _TIERS_API,
    ),
    *members(
        _REPORTER,
        {
            "__post_init__": ("(self)", "when SGLang's metrics are there"),
            "current_scheduler_metrics_enabled": ("attribute", "does this rank keep metrics"),
            "metrics_collector": ("attribute", "whose labels ours have"),
        },
        why=_METRICS,
        until=_METRICS_API,
    ),
    Seam(f"{_COLLECTOR}.labels", "attribute", "with their values", _METRICS, _METRICS_API),
)

SEAMS: tuple[Seam, ...] = _CALIBRATION + _STEP_TIERS + _LIVE
