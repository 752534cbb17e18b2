"""Before the first step: plugin, flags, gates, choice of the worker, ``doctor``, ``serve``."""

from sglang_specv2.seams.seam import RELIED_ON, Seam, members

_PUBLIC = "SGLang's plugin interface"
_A_FLAG = "a public flag of SGLang"
_A_COMMAND = "a public command of SGLang"
_NO_FLAG_API = "a plugin cannot declare flags"
_FLAG_API = "SGLang lets plugins declare flags"
_NO_WORKER_API = "a plugin cannot name the worker of a built-in algorithm"
_WORKER_API = "SGLang lets plugins name the worker of a built-in algorithm"
_STAYS = "as long as we plug into SGLang"

_PLUGINS = "sglang.srt.plugins"
_ARGS = "sglang.srt.server_args.ServerArgs"
_GRAPH_CONFIG = "sglang.srt.model_executor.cuda_graph_config"
_MODEL_CONFIG = "sglang.srt.configs.model_config.ModelConfig"

SEAMS: tuple[Seam, ...] = (
    *members(
        _PLUGINS,
        {
            "load_plugins": ("()", "runs our entry point; doctor too"),
            "load_plugins_by_group": ("(group, ...)", "doctor: is our entry point let in"),
        },
        why=_PUBLIC,
        until=_STAYS,
    ),
    *members(
        _PLUGINS,
        {
            "GENERAL_PLUGINS_GROUP": ("attribute", "the group of our entry point"),
            "PLATFORM_PLUGINS_GROUP": ("attribute", "the group that is asked before --help"),
        },
        why=RELIED_ON,
        until=_FLAG_API,
    ),
    Seam(
        "sglang.srt.platforms._resolve_platform",
        "()",
        "asks that group while SGLang is imported",
        RELIED_ON,
        _FLAG_API,
    ),
    *members(
        "sglang.srt.environ",
        {
            "envs": ("attribute", "doctor: SGLANG_PLATFORM shuts our entry point out"),
            "Envs.SGLANG_PLATFORM": ("attribute", "doctor"),
            "Envs.SGLANG_ENABLE_OVERLAP_PLAN_STREAM": ("attribute", "gates"),
            "EnvField.get": ("(self)", "doctor"),
        },
        why="SGLang reads its variables through it",
        until=_FLAG_API,
    ),
    Seam(_ARGS, "class", "carries our options as one more field", _NO_FLAG_API, _FLAG_API),
    *members(
        _ARGS,
        {
            "add_cli_args": ("(parser)", "our flags; doctor reads flags"),
            "from_cli_args": ("(cls, args)", "takes our field along; doctor resolves flags"),
        },
        why=_NO_FLAG_API,
        until=_FLAG_API,
    ),
    Seam(
        f"{_ARGS}.__post_init__",
        "(self)",
        "resolves the arguments within the __init__ that our checks go around",
        RELIED_ON,
        _FLAG_API,
    ),
    Seam(
        f"{_ARGS}.model_config",
        "attribute",
        "gates, once SGLang has read the model's configuration",
        "the gates need the model's, not the flags'",
        _STAYS,
    ),
    *members(
        _ARGS,
        {
            "speculative_algorithm": ("attribute", "gates"),
            "speculative_adaptive": ("attribute", "gates"),
            "enable_multi_layer_eagle": ("attribute", "gates"),
            "enable_dp_attention": ("attribute", "gates"),
            "enable_two_batch_overlap": ("attribute", "gates"),
            "enable_pdmux": ("attribute", "gates"),
            "pp_size": ("attribute", "gates"),
            "disaggregation_mode": ("attribute", "gates"),
            "max_running_requests": ("attribute", "is the threshold ever crossed"),
            "cuda_graph_config": ("attribute", "is every batch up to the threshold captured"),
            "model_path": ("attribute", "doctor: the draft, where it is the target's own"),
            "speculative_draft_model_path": ("attribute", "doctor: the draft"),
            "speculative_num_steps": ("attribute", "doctor --explain: rows per request"),
            "speculative_num_draft_tokens": ("attribute", "doctor --explain: rows per request"),
            "speculative_eagle_topk": ("attribute", "doctor --explain: rows per request"),
            "speculative_use_rejection_sampling": ("attribute", "is draft_probs relayed"),
        },
        why=_A_FLAG,
        until=_STAYS,
    ),
    *members(
        _GRAPH_CONFIG,
        {
            "CudaGraphConfig.decode": ("attribute", "capture sizes that are planned for decode"),
            "PhaseConfig.bs": ("attribute", "capture sizes that are planned for decode"),
            "PhaseConfig.backend": ("attribute", "whether any are"),
        },
        why=_A_FLAG,
        until=_STAYS,
    ),
    *members(
        _MODEL_CONFIG,
        {
            "is_hybrid_swa": ("attribute", "gates: two KV pools"),
            "model_is_mrope": ("attribute", "gates: positions with three parts"),
            "hf_config": ("attribute", "names the model in a refusal; the draft's architecture"),
        },
        why="SGLang alone knows how it keeps a model's KV",
        until=_STAYS,
    ),
    Seam(
        "sglang.srt.configs.hybrid_arch.mambaish_config",
        "(model_config)",
        "gates: recurrent state",
        "SGLang alone knows which models keep recurrent state",
        _STAYS,
    ),
    Seam(
        "sglang.srt.server_args_config_parser.ConfigArgumentMerger.merge_config_with_args",
        "(self, cli_args)",
        "doctor reads flags, those of --config included",
        _A_COMMAND,
        _STAYS,
    ),
    Seam(
        "sglang.cli.serve.serve", "(args, extra_argv)", "our serve ends in it", _A_COMMAND, _STAYS
    ),
    Seam(
        "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker",
        "(self, server_args)",
        "puts our worker in place of EAGLEWorkerV2",
        _NO_WORKER_API,
        _WORKER_API,
    ),
)
