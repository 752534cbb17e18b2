"""The names of sgl_kernel that the EAGLE path calls on a CPU."""

from sglang_specv2.cpu.kernels import (
    assign_draft_cache_locs_contiguous as assign_draft_cache_locs_contiguous_cpu,
)
from sglang_specv2.cpu.kernels import assign_extend_cache_locs as assign_extend_cache_locs_cpu
from sglang_specv2.cpu.kernels import assign_req_to_token_pool as assign_req_to_token_pool_cpu
from sglang_specv2.cpu.kernels import build_chain as build_tree_kernel_efficient_cpu
from sglang_specv2.cpu.kernels import copy_all_layer_kv_cache as copy_all_layer_kv_cache_cpu
from sglang_specv2.cpu.kernels import fill_bonus_tokens as fill_bonus_tokens_cpu
from sglang_specv2.cpu.kernels import verify_chain_greedy as verify_tree_greedy_cpu
from sglang_specv2.cpu.sampling import (
    top_k_renorm_prob,
    top_p_renorm_prob,
)
from sglang_specv2.cpu.sampling import (
    verify_chain_sampling as tree_speculative_sampling_target_only,
)

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_bonus_tokens_cpu",
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy_cpu",
]
