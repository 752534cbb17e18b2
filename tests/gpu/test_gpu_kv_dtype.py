"""With an FP8 KV cache the sync stores what the draft's own extend would store."""

import pytest
import torch
from worker_scenarios import distance

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: attention over an FP8 KV cache"
)

FP8 = ("--dtype", "bfloat16", "--kv-cache-dtype", "fp8_e4m3", "--speculative-dynamic", "never")
ONE_STEP_OF_FP8 = 2**-3  # three bits of mantissa


def last_entries(server, texts):
    """Tokens, and the draft's entries at the end of each request, most of them plain steps'."""
    server.schedule("50p 3s")  # Entries wait until speculation needs them.
    with server.watching_draft_kv():
        waiting = [
            server.submit(text.prompt, rid=f"text-{i}", max_new_tokens=60)
            for i, text in enumerate(texts[:4])
        ]
        tokens = [future.result().token_ids for future in waiting]
    entries = dict(server.draft_kv())
    return tokens, [entries[f"text-{i}"][0] for i in range(4)]


def test_the_entries_are_those_of_a_full_extend(start_probed, texts):
    kv = start_probed(*FP8, "--speculative-draft-sync", "kv")
    tokens, written = last_entries(kv, texts)
    kv.stop()
    extend = start_probed(*FP8, "--speculative-draft-sync", "extend")
    expected_tokens, expected = last_entries(extend, texts)
    extend.stop()

    for mine, theirs, same in zip(written, expected, range(4), strict=True):
        assert min(len(mine[0]), len(theirs[0])) >= len(texts[same].prompt) + 45
        if tokens[same] != expected_tokens[same]:
            continue  # a near-tie of two logits in bfloat16, decided otherwise
        largest = max(t.abs().max().item() for t in theirs)
        assert largest > 0.5
        assert distance(mine, theirs) <= largest * ONE_STEP_OF_FP8
        equal = [
            (a[: len(b)] == b[: len(a)]).float().mean() for a, b in zip(mine, theirs, strict=True)
        ]
        assert min(equal) > 0.95
    assert sum(a == b for a, b in zip(tokens, expected_tokens, strict=True)) >= 2
