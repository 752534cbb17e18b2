"""Stand-ins with the interfaces of SGLang's own objects, for parts of the worker by themselves."""

from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.eagle_info import EagleDraftInput

from sglang_specv2.draft_sync.base import DraftSync

SLOTS, POSITIONS, HIDDEN = 12, 40, 6


class Calls(list[str]):
    """What happened, in order."""


class FakeRunner:
    """A target that computes nothing: hidden state of a row = its token, next token = token + 1."""

    def __init__(self, calls: Calls) -> None:
        self.device = "cpu"
        self.decode_cuda_graph_runner: Any = "the verify's graphs"
        self.attn_backend: Any = "the verify's attention"
        self.model_config = SimpleNamespace(model_is_mrope=False)
        self.server_args = SimpleNamespace(enable_lora=False)
        self.ngram_embedding_manager = SimpleNamespace(enabled=False)
        table = torch.arange(SLOTS * POSITIONS, dtype=torch.int32).view(SLOTS, POSITIONS)
        self.req_to_token_pool = SimpleNamespace(req_to_token=table)
        self.calls = calls
        self.seen: list[Any] = []
        self.logprobs = False
        self.fails = False

    def forward(self, forward_batch: Any) -> Any:
        self.calls.append("forward")
        self.seen.append((forward_batch, self.decode_cuda_graph_runner, self.attn_backend))
        if self.fails:
            raise RuntimeError("no memory")
        hidden = forward_batch.input_ids[:, None].float().expand(-1, HIDDEN)
        rows = len(hidden)
        logits = SimpleNamespace(
            hidden_states=hidden,
            next_token_logprobs=torch.arange(rows).float() if self.logprobs else None,
        )
        return SimpleNamespace(
            logits_output=logits,
            can_run_graph=False,
            routed_experts_output=None,
            indexer_topk_output=None,
            expert_distribution_metrics=None,
        )

    def sample(self, logits: Any, forward_batch: Any) -> torch.Tensor:
        self.calls.append("sample")
        return forward_batch.input_ids.int() + 1


class FakeSync(DraftSync):
    """Writes down how it is called."""

    mode = "fake"

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.after: tuple[Any, ...] | None = None
        self.reads_last = False

    def catch_up(self) -> None:
        self.calls.append("catch up")

    def after_plain_step(self, *after: Any) -> bool:
        self.calls.append("after")
        self.after = after
        return self.reads_last

    must_resume = True

    def resume(self, batch: Any) -> None:
        self.calls.append("resume")

    def prefill(self, batch: Any, hidden_states: Any, next_token_ids: Any) -> Any:
        self.calls.append("prefill")
        return "no proposal"

    def reset(self) -> None:
        self.calls.append("reset")


def decode_batch(runner: FakeRunner, requests: list[int], lengths: list[int]) -> ScheduleBatch:
    """A batch as the scheduler hands it to a worker that speculates."""
    batch = ScheduleBatch(
        reqs=[
            SimpleNamespace(
                lora_id=None,
                rid=f"r{i}",
                token_type_ids=None,
                sampling_params=SimpleNamespace(custom_params=None),
                seqlen=length,
            )
            for i, length in zip(requests, lengths, strict=True)
        ]
    )
    batch.device = "cpu"
    batch.forward_mode = ForwardMode.DECODE
    batch.req_to_token_pool = runner.req_to_token_pool
    batch.req_pool_indices = torch.tensor(requests)
    batch.seq_lens = torch.tensor(lengths)
    batch.seq_lens_cpu = torch.tensor(lengths)
    batch.seq_lens_sum = sum(lengths)
    batch.spec_info = EagleDraftInput(
        bonus_tokens=torch.tensor([100 + i for i in requests], dtype=torch.int32),
        topk_p=torch.full((len(requests), 1), 0.5),
        topk_index=torch.zeros((len(requests), 1), dtype=torch.int64),
        hidden_states=torch.zeros((len(requests), HIDDEN)),
    )
    return batch
