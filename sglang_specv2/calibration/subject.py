"""What this server would be calibrated as, and the circumstances."""

from __future__ import annotations

import hashlib
import json
import platform
from datetime import datetime, timezone
from typing import Any

import sglang
import torch

from sglang_specv2 import gpus
from sglang_specv2.calibration.file import Subject
from sglang_specv2.commit import commit


def subject_of(worker: Any) -> Subject:
    """The subject of a worker whose graphs are captured."""
    target, draft_runner = worker.target_worker.model_runner, worker.draft_worker.draft_runner
    return Subject(
        gpu=_device_name(worker.device),
        gpu_count=worker.ps.tp_size,
        sglang=sglang.__version__,
        torch=torch.__version__,
        attention_backend=type(worker.plain_runtime.attn_backend).__name__,
        model=_identity(target.model_config.hf_config),
        draft=_identity(draft_runner.model_config.hf_config),
        dtype=str(target.model_config.dtype).removeprefix("torch."),
        kv_cache_dtype=str(target.kv_cache_dtype).removeprefix("torch."),
        quantization=target.model_config.quantization,
        draft_quantization=draft_runner.model_config.quantization,
        num_steps=worker.speculative_num_steps,
        topk=worker.topk,
        num_draft_tokens=worker.speculative_num_draft_tokens,
        draft_sync=worker.draft_sync.mode,
        capture_sizes=tuple(worker.plain_runtime.sizes),
    )


def provenance() -> dict[str, Any]:
    """Date, commit, and the GPUs of this process as they are right after the measurement."""
    try:
        found = gpus.visible()
    except gpus.NoGpuError:
        found = []
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "gpus": [vars(gpu) for gpu in found],
    }


def _device_name(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{device} ({platform.processor() or platform.machine()})"


def _identity(config: Any) -> str:
    """Architecture, and a digest of the configuration without where it lies."""
    content = {k: v for k, v in config.to_dict().items() if not k.startswith("_name_or_path")}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()
    return f"{(config.architectures or ['unknown'])[0]} {digest[:12]}"
