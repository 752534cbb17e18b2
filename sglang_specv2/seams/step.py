"""A decode step: the worker, the batch it is given, the target's forward, the result it returns."""

from sglang_specv2.seams.seam import RELIED_ON, Seam, members

_NO_WORKER_API = "a plugin cannot name the worker of a built-in algorithm"
_WORKER_API = "SGLang lets plugins name the worker of a built-in algorithm"
_SUBCLASS = "the worker is a subclass"
_ONE_STEP = "the worker is a subclass, and this is its step"
_PLAIN = "a plain step is a forward of the target as SGLang makes it"
_MODE_API = "SGLang decodes without drafting in the same server"
_CAPTURE = "it is SGLang's capture"
_GRAPH_API = "SGLang captures DECODE beside TARGET_VERIFY by itself"
_RELAY_API = "the relay between steps has a documented interface"

_WORKER = "sglang.srt.speculative.eagle_worker_v2.EAGLEWorkerV2"
_TARGET = "sglang.srt.managers.tp_worker.TpModelWorker"
_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
_OUTPUT = "sglang.srt.model_executor.model_runner.ModelRunnerOutput"
_LOGITS = "sglang.srt.layers.logits_processor.LogitsProcessorOutput"
_FORWARD = "sglang.srt.model_executor.forward_batch_info"
_GRAPHS = "sglang.srt.model_executor.runner.DecodeCudaGraphRunner"
_GRAPH_CONFIG = "sglang.srt.model_executor.cuda_graph_config"
_BATCH = "sglang.srt.managers.schedule_batch.ScheduleBatch"
_RESULT = "sglang.srt.managers.utils.GenerationBatchResult"

_WORKER_SEAMS = (
    Seam(_WORKER, "class", "base of our worker", _NO_WORKER_API, _WORKER_API),
    *members(
        _WORKER,
        {
            "__init__": (
                "(self, server_args, gpu_id, ps, nccl_port, target_worker)",
                "our configuration comes first",
            ),
            "init_cuda_graphs": ("(self)", "where the second graph family is captured"),
            "target_worker": ("property", "runs the plain forward"),
            "draft_worker": ("property", "is kept in step"),
            "req_to_token_pool": ("attribute", "how many request slots there are"),
            "speculative_num_draft_tokens": ("attribute", "names an inflated batch"),
            "topk": ("attribute", "shape of the relayed proposals"),
            "device": ("attribute", "of the relayed proposals"),
            "_additional_graph_memory_usage": ("attribute", "SGLang logs the plain graphs' share"),
            "_additional_graph_time_usage": ("attribute", "SGLang logs the plain graphs' share"),
            "update_weights_from_disk": (
                "(self, recv_req)",
                "loads the target's checkpoint into the draft, which may be another one",
            ),
            "_override_worker_state": (
                "(self, speculative_num_steps, speculative_num_draft_tokens, ...)",
                "builds the draft extend at one row per request, then puts all back",
            ),
        },
        why=_SUBCLASS,
        until=_MODE_API,
    ),
    *members(
        _WORKER,
        {
            "forward_batch_generation": (
                "(self, batch, on_publish, grammar_barrier)",
                "one step, where the mode is chosen",
            ),
            "war_fastpath_runner": (
                "property",
                "the runner that the scheduler's write-after-read barrier waits on",
            ),
            "spec_v2_attn_backends": (
                "property",
                "decides with all of them whether lengths are needed on the CPU",
            ),
        },
        why=_ONE_STEP,
        until=_MODE_API,
    ),
    *members(
        "sglang.srt.layers.moe.utils",
        {
            "speculative_moe_backend_context": ("()", "around our forwards of the draft"),
            "speculative_moe_a2a_backend_context": ("()", "around our forwards of the draft"),
        },
        why="the worker's own forwards of the draft run in it",
        until=_MODE_API,
    ),
)

_BATCH_SEAMS = (
    *members(
        _BATCH,
        {
            "forward_mode": ("attribute", "prefill or decode; DECODE for a plain step"),
            "is_extend_in_batch": ("attribute", "a mixed batch is left to SGLang"),
            "spec_info": ("attribute", "draft state of the last step; none for a plain step"),
            "input_ids": ("attribute", "input of a plain step and of a draft prefill"),
            "seq_lens": ("attribute", "lengths before the step"),
            "seq_lens_cpu": ("attribute", "the same on the CPU, where a backend needs it"),
            "seq_lens_sum": ("attribute", "follows the lengths"),
            "out_cache_loc": ("attribute", "KV slots of the step's tokens"),
            "req_pool_indices": ("attribute", "request slots, and how many requests are live"),
            "req_to_token_pool": ("attribute", "KV slots reserved past the length"),
            "has_grammar": ("attribute", "whether grammars have to catch up before sampling"),
            "extend_lens": ("attribute", "rows of each request of a prefill"),
            "prefix_lens": ("attribute", "first position of each request of a prefill"),
            "reqs": ("attribute", "whose verifies are counted"),
        },
        why=_ONE_STEP,
        until=_MODE_API,
    ),
    Seam(
        "sglang.srt.mem_cache.memory_pool.ReqToTokenPool.req_to_token",
        "attribute",
        "KV slots reserved past the length",
        _ONE_STEP,
        _MODE_API,
    ),
    Seam(
        "sglang.srt.speculative.eagle_info.EagleVerifyInput.draft_token",
        "attribute",
        "tells a batch that was inflated for a verify",
        _ONE_STEP,
        _MODE_API,
    ),
    Seam(
        "sglang.srt.managers.scheduler.Scheduler._forward_isolation",
        "(self, batch, *, overlap)",
        "undoes what a step does to the batch",
        RELIED_ON,
        _MODE_API,
    ),
)

_TARGET_SEAMS = (
    *members(
        _TARGET,
        {
            "model_runner": ("property", "the target's forward and sampling"),
            "model_config": ("attribute", "vocab_size, where draft_probs are relayed"),
        },
        why=_PLAIN,
        until=_MODE_API,
    ),
    Seam(
        "sglang.srt.configs.model_config.ModelConfig.vocab_size",
        "attribute",
        "width of relayed draft_probs",
        _ONE_STEP,
        _RELAY_API,
    ),
    *members(
        _RUNNER,
        {
            "forward": ("(self, forward_batch, ...)", "the plain forward"),
            "sample": ("(self, logits_output, forward_batch)", "every sampling option of SGLang"),
            "device": ("attribute", "where our tensors go; graphs or not"),
            "req_to_token_pool": ("attribute", "KV slots reserved past the length"),
            "gpu_id": ("attribute", "memory that the plain graphs take"),
            "max_running_requests": ("attribute", "is the threshold ever crossed"),
            "decode_cuda_graph_runner": ("attribute", "swapped for a plain step"),
            "attn_backend": ("attribute", "swapped for a plain step"),
            "war_fastpath_read_done_event": (
                "attribute",
                "withdrawn where a resume set it too early",
            ),
        },
        why=_PLAIN,
        until=_MODE_API,
    ),
    *members(
        _RUNNER,
        {
            "_get_attention_backend": (
                "(self, init_new_workspace)",
                "an attention backend for the plain graphs alone",
            ),
            "init_new_workspace": ("attribute", "what that call leaves changed is put back"),
            "spec_algorithm": ("attribute", "NONE while the plain graphs are captured"),
        },
        why="two graph families must not share buffers, and a capture reads its mode here",
        until=_GRAPH_API,
    ),
    *members(
        _OUTPUT,
        {
            "logits_output": ("attribute", "what is sampled from"),
            "can_run_graph": ("attribute", "handed on"),
            "routed_experts_output": ("attribute", "handed on"),
            "indexer_topk_output": ("attribute", "handed on"),
            "expert_distribution_metrics": ("attribute", "handed on"),
        },
        why=_PLAIN,
        until=_MODE_API,
    ),
    *members(
        _LOGITS,
        {
            "hidden_states": ("attribute", "the target's, which the draft reads"),
            "next_token_logits": ("attribute", "none, in what a draft extend is given"),
            "next_token_logprobs": ("attribute", "shaped as the scheduler reads a verify's"),
        },
        why=_PLAIN,
        until=_MODE_API,
    ),
    *members(
        _FORWARD,
        {
            "ForwardMode.DECODE": ("attribute", "mode of a plain step"),
            "ForwardMode.is_decode": ("(self)", "which steps a policy decides"),
            "ForwardMode.is_extend": ("(self, ...)", "which steps are prefills"),
            "CaptureHiddenMode.FULL": ("attribute", "the target's hidden states of every row"),
            "ForwardBatch.init_new": (
                "(cls, batch, model_runner, *, capture_hidden_mode, "
                "return_hidden_states_before_norm)",
                "a batch as the target takes it",
            ),
        },
        why=_PLAIN,
        until=_MODE_API,
    ),
)

_GRAPH_SEAMS = (
    Seam(_GRAPHS, "class", "captures the plain graphs", _CAPTURE, _GRAPH_API),
    *members(
        _GRAPHS,
        {
            "__init__": ("(self, model_runner, *, attn_backend, ...)", "captures at once"),
            "capture_prepare": ("(self, size, ...)", "before each size: hidden mode FULL"),
            "can_run_graph": ("(self, forward_batch)", "would it replay a graph for a batch"),
            "capture_bs": ("attribute", "capture sizes"),
            "capture_hidden_mode": ("attribute", "the draft reads hidden states of every row"),
        },
        why=_CAPTURE,
        until=_GRAPH_API,
    ),
    *members(
        _GRAPH_CONFIG,
        {
            "check_cuda_graph_backend": ("(phase, backend)", "are CUDA graphs on for decode"),
            "Phase.DECODE": ("attribute", "are CUDA graphs on for decode"),
            "Backend.DISABLED": ("attribute", "are CUDA graphs on for decode"),
        },
        why=_CAPTURE,
        until=_GRAPH_API,
    ),
    Seam(
        "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.NONE",
        "attribute",
        "a capture reads DECODE and width one off it",
        _CAPTURE,
        _GRAPH_API,
    ),
    Seam(
        "sglang.srt.utils.common.get_available_gpu_memory",
        "(device, gpu_id, ...)",
        "memory that the plain graphs take",
        "the same measure as SGLang's own log lines",
        _GRAPH_API,
    ),
)

_RESULT_SEAMS = (
    *members(
        _RESULT,
        {
            "logits_output": ("attribute", "logprobs; hidden states for a draft extend"),
            "next_token_ids": ("attribute", "one token per request"),
            "can_run_cuda_graph": ("attribute", "SGLang logs it"),
            "speculative_num_draft_tokens": ("attribute", "stride of the tokens: 1"),
            "next_draft_input": ("attribute", "draft state for the next step"),
            "accept_lens": ("attribute", "tokens per request: ones"),
            "new_seq_lens": ("attribute", "lengths after the step"),
            "routed_experts_output": ("attribute", "handed on"),
            "indexer_topk_output": ("attribute", "handed on"),
            "expert_distribution_metrics": ("attribute", "handed on"),
            "extra_keep_alive_refs": ("attribute", "outlives the call on the forward stream"),
            "num_correct_drafts_per_req_cpu": ("attribute", "outcome of a verify"),
        },
        why=_ONE_STEP,
        until=_MODE_API,
    ),
)

SEAMS: tuple[Seam, ...] = (
    *_WORKER_SEAMS,
    *_BATCH_SEAMS,
    *_TARGET_SEAMS,
    *_GRAPH_SEAMS,
    *_RESULT_SEAMS,
)
