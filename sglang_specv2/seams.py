"""The ledger: every name of SGLang that this package touches, and what it has to look like.

:mod:`sglang_specv2.compat` compares it with the installed SGLang. One entry a name; ``expected`` is
the parameter list of a function (``...`` at its end allows more), or one of ``class``,
``property`` and ``attribute`` (class, instance or module).
"""

from typing import NamedTuple


class Seam(NamedTuple):
    """A name of SGLang that we rely on.

    Attributes:
        path: where it is, dotted, from ``sglang``.
        expected: what it has to be.
        use: what for.
        why: why by this name and not by a public interface.
        until: when the entry can go.
    """

    path: str
    expected: str
    use: str
    why: str
    until: str


_PLUGINS = "sglang.srt.plugins"
_PLATFORMS = "sglang.srt.platforms"
_ARGS = "sglang.srt.server_args"
_GRAPH_CONFIG = "sglang.srt.model_executor.cuda_graph_config"
_SPEC = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm"
_WORKER = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2"
_DRAFT = "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker"
_DRAFT_INPUT = "sglang.srt.speculative.eagle_info.EagleDraftInput"
_RELAY = "sglang.srt.managers.overlap_utils"
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
_RESULT = "sglang.srt.managers.utils.GenerationBatchResult"
_GRAPHS = "sglang.srt.model_executor.runner.DecodeCudaGraphRunner"
_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
_FORWARD = "sglang.srt.model_executor.forward_batch_info"

_PUBLIC = "SGLang's plugin interface"
_A_FLAG = "a public flag of SGLang"
_A_COMMAND = "a public command of SGLang"
_NO_FLAG_API = "a plugin cannot declare flags"
_FLAG_API = "SGLang lets plugins declare flags"
_NO_WORKER_API = "a plugin cannot name the worker of a built-in algorithm"
_WORKER_API = "SGLang lets plugins name the worker of a built-in algorithm"
_ONE_STEP = "the worker is a subclass, and this is its step"
_MODE_API = "SGLang decodes without drafting in the same server"
_GRAPH_API = "SGLang captures DECODE beside TARGET_VERIFY by itself"
_RELAY_API = "the relay between steps has a documented interface"
_STAYS = "as long as we plug into SGLang"

LEDGER: tuple[Seam, ...] = (
    Seam(f"{_PLUGINS}.load_plugins", "()", "runs our entry point", _PUBLIC, _STAYS),
    Seam(f"{_PLUGINS}.GENERAL_PLUGINS_GROUP", "attribute", "our entry point", _PUBLIC, _STAYS),
    Seam(f"{_PLUGINS}.PLATFORM_PLUGINS_GROUP", "attribute", "flags in --help", _PUBLIC, _FLAG_API),
    Seam(f"{_PLATFORMS}._resolve_platform", "()", "flags in --help", _NO_FLAG_API, _FLAG_API),
    Seam(f"{_ARGS}.ServerArgs", "class", "carries our options", _NO_FLAG_API, _FLAG_API),
    Seam(f"{_ARGS}.ServerArgs.add_cli_args", "(parser)", "our flags", _NO_FLAG_API, _FLAG_API),
    Seam(f"{_ARGS}.ServerArgs.from_cli_args", "(cls, args)", "our flags", _NO_FLAG_API, _FLAG_API),
    Seam(f"{_ARGS}.ServerArgs.__post_init__", "(self)", "checks at start", _NO_FLAG_API, _FLAG_API),
    Seam(f"{_ARGS}.ServerArgs.model_config", "attribute", "gates", _NO_FLAG_API, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.speculative_algorithm", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.speculative_adaptive", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.enable_multi_layer_eagle", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.enable_dp_attention", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.enable_two_batch_overlap", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.enable_pdmux", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.pp_size", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(f"{_ARGS}.ServerArgs.disaggregation_mode", "attribute", "gates", _A_FLAG, _STAYS),
    Seam(
        f"{_ARGS}.ServerArgs.max_running_requests", "attribute", "threshold check", _A_FLAG, _STAYS
    ),
    Seam(f"{_ARGS}.ServerArgs.cuda_graph_config", "attribute", "threshold check", _A_FLAG, _STAYS),
    Seam(
        f"{_GRAPH_CONFIG}.CudaGraphConfig.decode", "attribute", "threshold check", _A_FLAG, _STAYS
    ),
    Seam(f"{_GRAPH_CONFIG}.PhaseConfig.bs", "attribute", "threshold check", _A_FLAG, _STAYS),
    Seam(f"{_GRAPH_CONFIG}.PhaseConfig.backend", "attribute", "threshold check", _A_FLAG, _STAYS),
    Seam(
        "sglang.srt.server_args_config_parser.ConfigArgumentMerger.merge_config_with_args",
        "(self, cli_args)",
        "doctor reads flags",
        _A_COMMAND,
        _STAYS,
    ),
    Seam(f"{_PLUGINS}.load_plugins_by_group", "(group, ...)", "doctor", _PUBLIC, _STAYS),
    Seam(
        "sglang.srt.configs.model_config.ModelConfig.is_hybrid_swa",
        "attribute",
        "gates",
        "SGLang alone knows how it keeps a model's KV",
        _STAYS,
    ),
    Seam(
        "sglang.srt.configs.hybrid_arch.mambaish_config",
        "(model_config)",
        "gates",
        "SGLang alone knows which models keep recurrent state",
        _STAYS,
    ),
    Seam(
        "sglang.cli.serve.serve", "(args, extra_argv)", "our serve ends in it", _A_COMMAND, _STAYS
    ),
    Seam(
        f"{_SPEC}.create_worker",
        "(self, server_args)",
        "puts our worker in place of EAGLEWorkerV2",
        _NO_WORKER_API,
        _WORKER_API,
    ),
    Seam(f"{_SPEC}.NONE", "attribute", "plain graphs", "runners read the mode off it", _GRAPH_API),
    Seam(_WORKER, "class", "base of our worker", _NO_WORKER_API, _WORKER_API),
    Seam(
        f"{_WORKER}.__init__",
        "(self, server_args, gpu_id, ps, nccl_port, target_worker)",
        "base of our worker",
        _NO_WORKER_API,
        _WORKER_API,
    ),
    Seam(
        f"{_WORKER}.forward_batch_generation",
        "(self, batch, on_publish, grammar_barrier)",
        "one step, where the mode is chosen",
        _ONE_STEP,
        _MODE_API,
    ),
    Seam(
        f"{_WORKER}.war_fastpath_runner",
        "property",
        "the runner that the scheduler's write-after-read barrier waits on",
        _ONE_STEP,
        _MODE_API,
    ),
    Seam(
        f"{_RUNNER}._get_attention_backend",
        "(self, init_new_workspace)",
        "an attention backend for the plain graphs alone",
        "two graph families must not share its buffers",
        _GRAPH_API,
    ),
    Seam(f"{_RUNNER}.attn_backend", "attribute", "swapped for a plain step", _ONE_STEP, _GRAPH_API),
    Seam(f"{_RUNNER}.spec_algorithm", "attribute", "plain graphs", _ONE_STEP, _GRAPH_API),
    Seam(_GRAPHS, "class", "captures the plain graphs", "it is SGLang's capture", _GRAPH_API),
    Seam(
        f"{_GRAPHS}.__init__",
        "(self, model_runner, *, attn_backend, ...)",
        "captures the plain graphs",
        "it is SGLang's capture",
        _GRAPH_API,
    ),
    Seam(f"{_GRAPHS}.capture_bs", "attribute", "capture sizes", "not public", _GRAPH_API),
    Seam(f"{_GRAPHS}.capture_hidden_mode", "attribute", "hidden states", "not public", _GRAPH_API),
    Seam(f"{_FORWARD}.CaptureHiddenMode.FULL", "attribute", "hidden states", _ONE_STEP, _STAYS),
    Seam(f"{_FORWARD}.ForwardMode.DECODE", "attribute", "mode of a plain step", _ONE_STEP, _STAYS),
    Seam(
        f"{_RELAY}.FutureMap.publish",
        "(self, future_indices, new_seq_lens, ...)",
        "lengths known before the forward",
        _ONE_STEP,
        _RELAY_API,
    ),
    Seam(
        f"{_RELAY}.FutureMap.stash",
        "(self, future_indices, payload)",
        "state of a request between steps",
        _ONE_STEP,
        _RELAY_API,
    ),
    Seam(f"{_RELAY}.RelayPayload.bonus_tokens", "attribute", "relay", _ONE_STEP, _RELAY_API),
    Seam(f"{_RELAY}.RelayPayload.topk_p", "attribute", "relay", _ONE_STEP, _RELAY_API),
    Seam(f"{_RELAY}.RelayPayload.topk_index", "attribute", "relay", _ONE_STEP, _RELAY_API),
    Seam(f"{_RELAY}.RelayPayload.hidden_states", "attribute", "relay", _ONE_STEP, _RELAY_API),
    Seam(f"{_DRAFT_INPUT}.bonus_tokens", "attribute", "plain step's input", _ONE_STEP, _RELAY_API),
    Seam(f"{_DRAFT_INPUT}.topk_p", "attribute", "proposal", _ONE_STEP, _RELAY_API),
    Seam(f"{_DRAFT_INPUT}.topk_index", "attribute", "proposal", _ONE_STEP, _RELAY_API),
    Seam(f"{_DRAFT_INPUT}.hidden_states", "attribute", "proposal", _ONE_STEP, _RELAY_API),
    Seam(f"{_BATCH}.input_ids", "attribute", "plain step's input", _ONE_STEP, _MODE_API),
    Seam(f"{_BATCH}.seq_lens", "attribute", "lengths before the step", _ONE_STEP, _MODE_API),
    Seam(f"{_BATCH}.out_cache_loc", "attribute", "plain step's KV slots", _ONE_STEP, _MODE_API),
    Seam(f"{_BATCH}.req_pool_indices", "attribute", "live batch size", _ONE_STEP, _MODE_API),
    Seam(f"{_BATCH}.spec_info", "attribute", "draft state", _ONE_STEP, _MODE_API),
    Seam(f"{_BATCH}.forward_mode", "attribute", "plain step's mode", _ONE_STEP, _MODE_API),
    Seam(
        "sglang.srt.managers.scheduler.Scheduler._forward_isolation",
        "(self, batch, *, overlap)",
        "undoes what a step does to the batch",
        "relied on, not called",
        _MODE_API,
    ),
    Seam(
        "sglang.srt.mem_cache.memory_pool.ReqToTokenPool.req_to_token",
        "attribute",
        "KV slots reserved past the length",
        _ONE_STEP,
        _MODE_API,
    ),
    Seam(f"{_RESULT}.next_token_ids", "attribute", "a step's result", _ONE_STEP, _MODE_API),
    Seam(f"{_RESULT}.accept_lens", "attribute", "a step's result", _ONE_STEP, _MODE_API),
    Seam(f"{_RESULT}.next_draft_input", "attribute", "a step's result", _ONE_STEP, _MODE_API),
    Seam(
        f"{_RESULT}.speculative_num_draft_tokens",
        "attribute",
        "stride of the result: 1 after a plain step",
        _ONE_STEP,
        _MODE_API,
    ),
)
