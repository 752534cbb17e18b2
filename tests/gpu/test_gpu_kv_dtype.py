"""With less than float32 the sync stores what the draft's own extend would store."""

import pytest
import torch
from sync_precision import require_entries_of_a_full_extend

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: attention over an FP8 KV cache"
)

ONE_STEP_OF_FP8 = 2**-3  # three bits of mantissa


@pytest.mark.parametrize(
    ("kv_cache", "relative"), [("bfloat16", 2e-2), ("fp8_e4m3", ONE_STEP_OF_FP8)]
)
def test_the_entries_are_those_of_a_full_extend(start_probed, texts, kv_cache, relative):
    flags = ("--dtype", "bfloat16", "--kv-cache-dtype", kv_cache)
    require_entries_of_a_full_extend(start_probed, texts, *flags, relative=relative)
