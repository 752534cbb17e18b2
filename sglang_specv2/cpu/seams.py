"""The ledger of the CPU engine: what it replaces in SGLang, and what its attention reads there.

Looked at only where the engine is installed; see :mod:`sglang_specv2.seams`.
"""

from sglang_specv2.seams import RELIED_ON, Seam, members

_REPLACED = "SGLang offers no other way to replace it"
_READ = "an attention backend is handed these objects"
_CPU_API = "SGLang runs the EAGLE path on any CPU"

_ARGS = "sglang.srt.server_args.ServerArgs"
_OPS = "sglang.kernels.ops"
_EAGLE = "sglang.srt.speculative.eagle_utils"
_DRAFT = "sglang.srt.speculative.draft_utils.DraftBackendFactory"
_GRAMMAR = "sglang.srt.constrained.xgrammar_backend"
_BACKEND = "sglang.srt.layers.attention.base_attn_backend.AttentionBackend"
_RADIX = "sglang.srt.layers.radix_attention"
_POOL = "sglang.srt.mem_cache.memory_pool"
_FORWARD = "sglang.srt.model_executor.forward_batch_info"

_REPLACEMENTS = (
    *members(
        _ARGS,
        {
            "_handle_missing_default_values": ("(self)", "defaults that run on any CPU"),
            "device": ("attribute", "refuses any other"),
            "attention_backend": ("attribute", "default: ours"),
            "dtype": ("attribute", "default: float32"),
            "max_total_tokens": ("attribute", "default: a small KV pool"),
            "sleep_on_idle": ("attribute", "leaves the cores to others"),
            "tp_size": ("attribute", "one entry for thread binding per rank"),
        },
        why=_REPLACED,
        until=_CPU_API,
    ),
    *members(
        "sglang.srt",
        {
            "server_args.add_deterministic_attention_backend_choices": (
                "(choices)",
                "seeds count with our attention backend",
            ),
            "batch_invariant_ops.enable_batch_invariant_mode": (
                "(enable_bmm)",
                "replaces torch's products by Triton kernels: made to do nothing",
            ),
            "arg_groups.speculative_hook._disable_overlap_schedule_for_cpu": (
                "(server_args)",
                "made to do nothing: the overlap loop stays on",
            ),
            "layers.attention.attention_registry.ATTENTION_BACKENDS": (
                "attribute",
                "our attention backend goes by the name torch_native",
            ),
        },
        why=_REPLACED,
        until=_CPU_API,
    ),
    *members(
        _DRAFT,
        {
            "create_decode_backend": ("(self)", "our backends for the draft's decode steps"),
            "create_draft_extend_backend": ("(self)", "our backend for the draft extend"),
            "draft_model_runner": ("attribute", "whose pools those read"),
            "topk": ("attribute", "chains only"),
            "speculative_num_steps": ("attribute", "how many decode steps the draft makes"),
        },
        why=_REPLACED,
        until=_CPU_API,
    ),
    *members(
        _EAGLE,
        {
            "eagle_sample": ("(verify_input, batch, ...)", "verifies by sampling, not greedily"),
            "_is_cpu": ("attribute", "is what it asks before"),
        },
        why=_REPLACED,
        until=_CPU_API,
    ),
    Seam(
        f"{_EAGLE}.TreeMaskMode.QLEN_ONLY",
        "attribute",
        "the mask layout that build_chain writes",
        _REPLACED,
        _CPU_API,
    ),
    *members(
        _OPS,
        {
            "speculative.gather_spec_extras.gather_spec_extras": (
                "(indices, topk_p_buf, topk_index_buf, output_tokens_buf, hidden_states_buf)",
                "relay between steps, in torch",
            ),
            "memory.allocator.alloc_extend_kernel": (
                "(pre_lens_ptr, seq_lens_ptr, last_loc_ptr, free_page_ptr, out_indices, "
                "bs_upper, page_size)",
                "paged allocation, in torch",
            ),
            "memory.allocator.alloc_decode_kernel": (
                "(seq_lens_ptr, last_loc_ptr, free_page_ptr, out_indices, bs_upper, page_size)",
                "paged allocation, in torch",
            ),
            "sampling.murmur_hash.murmur_hash32": (
                "(seed, positions, col_indices)",
                "random numbers of a seeded request, in torch",
            ),
        },
        why=_REPLACED,
        until=_CPU_API,
    ),
    *members(
        _GRAMMAR,
        {
            "_allocate_token_bitmask": ("(vocab_size, batch_size)", "a mask that is not pinned"),
            "XGrammarGrammar.apply_vocab_mask": (
                "(self, logits, vocab_mask)",
                "xgrammar's own, for CPUs",
            ),
        },
        why=_REPLACED,
        until=_CPU_API,
    ),
)

_ATTENTION = (
    Seam(_BACKEND, "class", "base of our attention backend", _READ, _CPU_API),
    *members(
        _BACKEND,
        {
            "init_forward_metadata": ("(self, forward_batch)", "before the layers of a forward"),
            "forward_extend": (
                "(self, q, k, v, layer, forward_batch, save_kv_cache, ...)",
                "a layer's attention, more than one token per request",
            ),
            "forward_decode": (
                "(self, q, k, v, layer, forward_batch, save_kv_cache, ...)",
                "a layer's attention, one token per request",
            ),
            "update_verify_buffers_to_fill_after_draft": (
                "(self, spec_info, cuda_graph_bs)",
                "nothing to do for chains",
            ),
            "support_triton": ("(self)", "no Triton on a CPU"),
            "needs_cpu_seq_lens": ("attribute", "lengths are read on the CPU"),
        },
        why=_READ,
        until=_CPU_API,
    ),
    *members(
        _RADIX,
        {
            "AttentionType.DECODER": ("attribute", "the one kind there is here"),
            "RadixAttention.attn_type": ("attribute", "another kind is refused"),
            "RadixAttention.is_cross_attention": ("attribute", "refused"),
            "RadixAttention.sliding_window_size": ("attribute", "refused"),
            "RadixAttention.layer_id": ("attribute", "whose K and V"),
            "RadixAttention.qk_head_dim": ("attribute", "shape of the query"),
            "RadixAttention.v_head_dim": ("attribute", "shape of the output"),
            "RadixAttention.tp_q_head_num": ("attribute", "shape of the query"),
            "RadixAttention.scaling": ("attribute", "of the scores"),
        },
        why=_READ,
        until=_CPU_API,
    ),
    *members(
        _POOL,
        {
            "KVWriteLoc": ("class", "where K and V are written"),
            "MHATokenToKVPool.get_key_buffer": ("(self, layer_id)", "K by KV slot"),
            "MHATokenToKVPool.get_value_buffer": ("(self, layer_id)", "V by KV slot"),
        },
        why=_READ,
        until=_CPU_API,
    ),
    *members(
        f"{_POOL}.KVWriteLoc",
        {
            "loc": ("attribute", "first field: KV slots of the tokens"),
            "swa_loc": ("attribute", "second field: none"),
        },
        why=RELIED_ON,
        until=_CPU_API,
    ),
    *members(
        _FORWARD,
        {
            "ForwardMode.is_idle": ("(self)", "nothing to attend"),
            "ForwardMode.is_target_verify": ("(self)", "how many positions attend"),
            "ForwardBatch.forward_mode": ("attribute", "how many positions attend"),
            "ForwardBatch.seq_lens": ("attribute", "over how many"),
            "ForwardBatch.extend_seq_lens": ("attribute", "how many positions attend"),
            "ForwardBatch.spec_info": ("attribute", "how many positions a verify has"),
            "ForwardBatch.req_pool_indices": ("attribute", "whose positions"),
            "ForwardBatch.out_cache_loc": ("attribute", "where K and V of a step go"),
        },
        why=_READ,
        until=_CPU_API,
    ),
    Seam(
        "sglang.srt.speculative.eagle_info.EagleVerifyInput.draft_token_num",
        "attribute",
        "how many positions a verify has",
        _READ,
        _CPU_API,
    ),
)

CPU_LEDGER: tuple[Seam, ...] = (*_REPLACEMENTS, *_ATTENTION)
"""Every name, each once, none of them in :data:`sglang_specv2.seams.LEDGER`."""
