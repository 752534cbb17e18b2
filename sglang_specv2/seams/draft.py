"""The draft: SGLang's draft worker, its models and KV pool, and what is relayed between steps."""

from sglang_specv2.seams.seam import RELIED_ON, Seam, members

_DRAFT_WORKER = "the draft's forward at one row per request is the draft worker's own code"
_ONE_TOKEN_API = "SGLang runs the draft extend at any number of rows per request"
_DRAFT_MODEL = "K and V of a position are its own modules' work, so they stay right by themselves"
_KV_API = "SGLang writes a draft's K and V without running it"
_PROPOSAL = "the relayed draft state is this object"
_RELAY_API = "the relay between steps has a documented interface"

_WORKER = "sglang.srt.speculative.eagle_worker_v2.EagleDraftWorker"
_RUNNER = "sglang.srt.model_executor.model_runner.ModelRunner"
_DRAFT_INPUT = "sglang.srt.speculative.eagle_info.EagleDraftInput"
_EXTEND_GRAPHS = (
    "sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner.EAGLEDraftExtendCudaGraphRunner"
)
_UTILS = "sglang.srt.speculative.eagle_utils"
_RELAY = "sglang.srt.managers.overlap_utils"
_POOL = "sglang.srt.mem_cache.memory_pool.MHATokenToKVPool"
_RADIX = "sglang.srt.layers.radix_attention.RadixAttention"
_EAGLE3 = "sglang.srt.models.llama_eagle3"
_EAGLE = "sglang.srt.models.llama_eagle"
_QWEN2_EAGLE = "sglang.srt.models.qwen2_eagle"

_ATTENTION = {
    "qkv_proj": ("attribute", "whose K and V rows are computed alone"),
    "q_size": ("attribute", "where they start"),
    "kv_size": ("attribute", "how many each"),
    "num_kv_heads": ("attribute", "shape of K and V"),
    "head_dim": ("attribute", "shape of K and V"),
    "rotary_emb": ("attribute", "rotates K"),
    "attn": ("attribute", "the layer as the KV pool knows it"),
}

_DRAFT_WORKER_SEAMS = (
    *members(
        _WORKER,
        {
            "draft_runner": ("attribute", "model, pools and device of the draft"),
            "draft_tp_context": ("attribute", "around our forwards of the draft"),
            "init_attention_backend": ("(self)", "a second backend, at one row per request"),
            "_capture_cuda_graphs": ("(self)", "its graphs likewise"),
            "_draft_extend_for_decode": ("(self, batch, batch_result)", "the one-token extend"),
            "_draft_extend_for_prefill": (
                "(self, batch, target_hidden_states, next_token_ids, mm_input_embeds)",
                "replaced: while decode is plain a prefill writes K and V only",
            ),
            "draft_extend_attn_backend": ("attribute", "swapped for the one-token extend"),
            "cuda_graph_runner_for_draft_extend": ("attribute", "swapped likewise"),
            "speculative_num_draft_tokens": ("attribute", "rows per request: 1 meanwhile"),
        },
        why=_DRAFT_WORKER,
        until=_ONE_TOKEN_API,
    ),
    *members(
        _RUNNER,
        {
            "tp_group": ("attribute", "what draft_tp_context takes"),
            "model": ("attribute", "the draft's modules"),
            "model_config": ("attribute", "dtype and architecture of the draft"),
            "token_to_kv_pool": ("attribute", "where the draft's K and V go"),
            "dcp_size": ("attribute", "a KV pool spread over ranks is not written directly"),
        },
        why=_DRAFT_MODEL,
        until=_KV_API,
    ),
    *members(
        _RUNNER,
        {"server_args": ("attribute", "shown with one draft token while those graphs are built")},
        why="a draft extend's graphs take their width from the arguments of the start",
        until=_ONE_TOKEN_API,
    ),
    *members(
        _EXTEND_GRAPHS,
        {
            "captured_req_width": ("attribute", "that it is one"),
            "capture_bs": ("attribute", "how many there are"),
        },
        why="graphs of another width would be refused at every replay, in silence",
        until=_ONE_TOKEN_API,
    ),
    Seam(
        "sglang.srt.server_args.ServerArgs.enable_hierarchical_cache",
        "attribute",
        "are prefixes copied to the host, so that no entry may be pending when a request ends",
        "SGLang copies the draft's KV cache with the target's",
        _KV_API,
    ),
    *members(
        _UTILS,
        {
            "get_draft_input_from_target_hidden_dim": (
                "(model_runner)",
                "width of the target's states that the draft reads",
            ),
            "get_draft_recurrent_hidden_state_spec": (
                "(model_runner)",
                "width and dtype of the relayed hidden state",
            ),
            "_eagle_prefill_tail_tokens": (
                "(batch, next_token_ids)",
                "the token after each request's rows, chunked prefill included",
            ),
        },
        why="these rules are the draft worker's, with many special cases",
        until=_KV_API,
    ),
    *members(
        "sglang.srt.runtime_context",
        {"get_spec": ("()", "is draft_probs relayed (rejection sampling)")},
        why="where SGLang keeps resolved arguments",
        until=_RELAY_API,
    ),
)

_MODEL_SEAMS = (
    *members(
        _EAGLE3,
        {
            "LlamaForCausalLMEagle3.model": ("attribute", "the draft's body"),
            "LlamaModel.embed_tokens": ("attribute", "embeds the next token"),
            "LlamaModel.layers": ("attribute", "its only layer"),
            "LlamaModel.fc": ("attribute", "joins the target's auxiliary states"),
            "LlamaModel.num_aux_hidden_states": ("attribute", "how many those are"),
            "LlamaModel.input_norm": ("attribute", "norm before fc, in some drafts"),
            "LlamaModel.fc_norm": ("attribute", "a norm for each of those states, in some"),
            "LlamaModel.is_mrope_enabled": ("attribute", "multimodal positions: not for us"),
            "LlamaDecoderLayer.self_attn": ("attribute", "the layer's attention"),
            "LlamaDecoderLayer.input_layernorm": ("attribute", "norm of the embedding"),
            "LlamaDecoderLayer.hidden_norm": ("attribute", "norm of the target's state"),
        },
        why=_DRAFT_MODEL,
        until=_KV_API,
    ),
    *members(
        _EAGLE,
        {
            "LlamaForCausalLMEagle.model": ("attribute", "the draft's body"),
            "LlamaModel.embed_tokens": ("attribute", "embeds the next token"),
            "LlamaModel.layers": ("attribute", "its only layer"),
            "LlamaModel.fc": ("attribute", "joins embedding and target's state"),
            "LlamaDecoderLayer.self_attn": ("attribute", "the layer's attention"),
        },
        why=_DRAFT_MODEL,
        until=_KV_API,
    ),
    *members(
        _QWEN2_EAGLE,
        {
            "Qwen2ForCausalLMEagle.model": ("attribute", "the draft's body"),
            "Qwen2Model.embed_tokens": ("attribute", "embeds the next token"),
            "Qwen2Model.layers": ("attribute", "its only layer"),
            "Qwen2Model.fc": ("attribute", "joins embedding and target's state"),
            "Qwen2DecoderLayer.self_attn": ("attribute", "the layer's attention"),
        },
        why=_DRAFT_MODEL,
        until=_KV_API,
    ),
    *members("sglang.srt.models.llama.LlamaAttention", _ATTENTION, why=_DRAFT_MODEL, until=_KV_API),
    *members("sglang.srt.models.qwen2.Qwen2Attention", _ATTENTION, why=_DRAFT_MODEL, until=_KV_API),
    *members(
        "sglang.srt.layers.linear.QKVParallelLinear",
        {
            "bias": ("attribute", "of the K and V rows"),
            "quant_method": ("attribute", "whether its weight can be split by rows"),
        },
        why=_DRAFT_MODEL,
        until=_KV_API,
    ),
    Seam(
        "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod",
        "class",
        "its layers hold a plain `weight`, whose rows can be split off",
        _DRAFT_MODEL,
        _KV_API,
    ),
    *members(
        "sglang.srt.configs.model_config.ModelConfig",
        {"dtype": ("attribute", "of the target's states that are kept by request slot")},
        why=_DRAFT_MODEL,
        until=_KV_API,
    ),
)

_POOL_SEAMS = (
    *members(
        _POOL,
        {
            "set_kv_buffer": (
                "(self, layer, loc_info, cache_k, cache_v, k_scale, v_scale, ...)",
                "writes the draft's K and V",
            ),
            "is_quantized_kv_cache": ("property", "block-quantized: not written directly"),
        },
        why="the draft's own attention writes through it",
        until=_KV_API,
    ),
    *members(
        _RADIX,
        {
            "k_scale": ("attribute", "of an FP8 KV cache"),
            "v_scale": ("attribute", "of an FP8 KV cache"),
        },
        why="the draft's own attention writes with them",
        until=_KV_API,
    ),
)

_RELAY_SEAMS = (
    *members(
        _DRAFT_INPUT,
        {
            "bonus_tokens": ("attribute", "last token of each request: a plain step's input"),
            "topk_p": ("attribute", "proposal; zero marks a row without one"),
            "topk_index": ("attribute", "proposal"),
            "hidden_states": ("attribute", "proposal: the draft's own state"),
            "draft_probs": ("attribute", "proposal, with rejection sampling"),
            "dsa_topk_indices": ("attribute", "proposal, of sparse attention"),
            "num_tokens_per_req": ("attribute", "1 after a prefill"),
            "num_tokens_for_logprob_per_req": ("attribute", "1 after a prefill"),
        },
        why=_PROPOSAL,
        until=_RELAY_API,
    ),
    *members(
        "sglang.srt.managers.scheduler.Scheduler",
        {
            "_relay_forward_payload": (
                "(self, future_indices, batch_result)",
                "replaced for pending rows: writes a token and the mark, nothing else",
            ),
            "future_map": ("attribute", "the relay"),
        },
        why="SGLang relays every field of every row, a launch each",
        until=_RELAY_API,
    ),
    *members(
        f"{_RELAY}.FutureMap",
        {
            "_forward_buf_initialized": ("attribute", "are there buffers yet"),
            "output_tokens_buf": ("attribute", "last tokens by request slot, int64"),
            "topk_p_buf": ("attribute", "proposal by request slot; zero marks a pending row"),
        },
        why="SGLang relays every field of every row, a launch each",
        until=_RELAY_API,
    ),
    *members(
        _RELAY,
        {
            "FutureMap.publish": (
                "(self, future_indices, new_seq_lens, ...)",
                "takes the lengths before the forward",
            ),
            "FutureMap.stash": (
                "(self, future_indices, payload)",
                "keeps draft state by request slot; dtypes are those of the first",
            ),
            "FutureMap._lazy_init_forward_buf": (
                "(self, payload)",
                "makes the buffers from the first payload, which has to be whole",
            ),
            "FutureMap._resolve_spec_extras": (
                "(self, batch)",
                "gives each row its own draft state back, whatever joined or left",
            ),
            "RelayPayload.bonus_tokens": ("attribute", "relayed"),
            "RelayPayload.topk_p": ("attribute", "relayed as it is: zero stays zero"),
            "RelayPayload.topk_index": ("attribute", "relayed"),
            "RelayPayload.hidden_states": ("attribute", "relayed"),
            "RelayPayload.draft_probs": ("attribute", "relayed"),
        },
        why=RELIED_ON,
        until=_RELAY_API,
    ),
)

SEAMS: tuple[Seam, ...] = (*_DRAFT_WORKER_SEAMS, *_MODEL_SEAMS, *_POOL_SEAMS, *_RELAY_SEAMS)
