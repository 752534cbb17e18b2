"""What changes in SGLang 0.5.17 so that the EAGLE path runs on a CPU, module by module."""

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sglang_specv2.cpu.after_import import after_import
from sglang_specv2.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

Module = Any
"""A module of SGLang or torch, whose names are known only there."""

MAX_TOTAL_TOKENS = 65536
"""KV pool size without --max-total-tokens, where SGLang would claim most of the host's memory."""


def install() -> None:
    """Registers every patch; to be called once, before SGLang is imported."""
    after_import("torch", _let_cpu_streams_record)
    after_import("sglang.srt.server_args", _default_to_what_runs)
    after_import("sglang.srt.server_args", _let_seeds_count)
    after_import("sglang.srt.batch_invariant_ops", _leave_torch_as_it_is)
    after_import("sglang.srt.arg_groups.speculative_hook", _keep_overlap)
    after_import("sglang.srt.layers.attention.attention_registry", _register_attention)
    after_import("sglang.srt.speculative.draft_utils", _register_draft_attention)
    after_import("sglang.srt.speculative.eagle_utils", _verify_by_sampling)
    after_import("sglang.kernels.ops.speculative.gather_spec_extras", _gather_in_torch)
    after_import("sglang.kernels.ops.memory.allocator", _allocate_in_torch)
    after_import("sglang.kernels.ops.sampling.murmur_hash", _hash_in_torch)
    after_import("sglang.srt.constrained.xgrammar_backend", _mask_logits_on_the_host)


def _let_cpu_streams_record(torch: Module) -> None:
    """The overlap loop calls Tensor.record_stream, which refuses CPU streams."""
    original = torch.Tensor.record_stream

    @functools.wraps(original)
    def record_stream(tensor: "Tensor", stream: Any) -> None:
        if tensor.device.type != "cpu":
            original(tensor, stream)

    torch.Tensor.record_stream = record_stream


def _default_to_what_runs(server_args: Module) -> None:
    """SGLang's defaults on a CPU: AMX kernels, float16, all memory, a core spent on waiting."""
    original = server_args.ServerArgs._handle_missing_default_values

    @functools.wraps(original)
    def handle_missing_default_values(args: Any) -> None:
        original(args)
        if args.device != "cpu":
            raise ConfigError(
                f"the CPU engine is installed in this process, but the device is {args.device!r}: "
                "expected --device cpu, or a start without SGLANG_SPECV2_CPU=1"
            )
        if args.attention_backend is None:
            args.attention_backend = "torch_native"
        if args.dtype == "auto":
            args.dtype = "float32"
        if args.max_total_tokens is None:
            args.max_total_tokens = MAX_TOTAL_TOKENS
        args.sleep_on_idle = True
        # SGLang insists on one entry per rank; it binds threads to them with AMX only.
        ranks = "|".join(str(rank) for rank in range(args.tp_size))
        os.environ.setdefault("SGLANG_CPU_OMP_THREADS_BIND", ranks)

    server_args.ServerArgs._handle_missing_default_values = handle_missing_default_values


def _let_seeds_count(server_args: Module) -> None:
    """SGLang heeds a request's sampling seed with --enable-deterministic-inference only."""
    server_args.add_deterministic_attention_backend_choices(["torch_native"])


def _leave_torch_as_it_is(batch_invariant_ops: Module) -> None:
    """The flag also replaces torch's products by Triton kernels that do not depend on the batch."""
    batch_invariant_ops.enable_batch_invariant_mode = lambda: None


def _keep_overlap(speculative_hook: Module) -> None:
    """SGLang turns the overlap loop off for speculation on a CPU; it is what is to be tested."""
    speculative_hook._disable_overlap_schedule_for_cpu = lambda server_args: None


def _register_attention(attention_registry: Module) -> None:
    def create(runner: Any) -> Any:
        from sglang_specv2.cpu.attention_backend import CpuAttentionBackend

        return CpuAttentionBackend(runner)

    attention_registry.ATTENTION_BACKENDS["torch_native"] = create


def _register_draft_attention(draft_utils: Module) -> None:
    def create_decode_backend(factory: Any) -> Any:
        from sglang_specv2.cpu.attention_backend import CpuMultiStepDraftBackend

        if factory.speculative_num_steps <= 1:
            return None
        return CpuMultiStepDraftBackend(
            factory.draft_model_runner, factory.topk, factory.speculative_num_steps
        )

    def create_draft_extend_backend(factory: Any) -> Any:
        from sglang_specv2.cpu.attention_backend import CpuAttentionBackend

        return CpuAttentionBackend(factory.draft_model_runner)

    draft_utils.DraftBackendFactory.create_decode_backend = create_decode_backend
    draft_utils.DraftBackendFactory.create_draft_extend_backend = create_draft_extend_backend


def _verify_by_sampling(eagle_utils: Module) -> None:
    """``eagle_sample`` reads ``_is_cpu`` once, to verify greedily whatever the temperature."""
    original = eagle_utils.eagle_sample

    @functools.wraps(original)
    def eagle_sample(verify_input: Any, batch: Any, *args: Any, **kwargs: Any) -> Any:
        if batch.forward_mode.is_idle() or batch.sampling_info.is_all_greedy:
            return original(verify_input, batch, *args, **kwargs)
        eagle_utils._is_cpu = False
        try:
            return original(verify_input, batch, *args, **kwargs)
        finally:
            eagle_utils._is_cpu = True

    eagle_utils.eagle_sample = eagle_sample


def _gather_in_torch(gather_spec_extras: Module) -> None:
    from sglang_specv2.cpu import kernels

    gather_spec_extras.gather_spec_extras = kernels.gather_spec_extras


def _allocate_in_torch(allocator: Module) -> None:
    from sglang_specv2.cpu import allocation

    allocator.alloc_extend_kernel = _Launch(allocation.alloc_extend)
    allocator.alloc_decode_kernel = _Launch(allocation.alloc_decode)


def _hash_in_torch(murmur_hash: Module) -> None:
    from sglang_specv2.cpu import sampling

    murmur_hash.murmur_hash32 = sampling.murmur_hash32


def _mask_logits_on_the_host(xgrammar_backend: Module) -> None:
    """SGLang pins the grammar's bit mask and applies it with Triton; xgrammar can on a CPU."""
    import torch
    import xgrammar

    def allocate(vocab_size: int, batch_size: int) -> "Tensor":
        shape = xgrammar.get_bitmask_shape(batch_size, vocab_size)
        return torch.full(shape, -1, dtype=xgrammar.bitmask_dtype)

    def apply(grammar: Any, logits: "Tensor", vocab_mask: "Tensor") -> None:
        xgrammar.apply_token_bitmask_inplace(logits, vocab_mask)

    xgrammar_backend._allocate_token_bitmask = allocate
    xgrammar_backend.XGrammarGrammar.apply_vocab_mask = apply


class _Launch:
    """A function behind Triton's syntax for a launch, ``kernel[grid](...)``."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function

    def __getitem__(self, grid: object) -> Callable[..., None]:
        return self.function
