"""Ten minutes of random load around the threshold; ``SPECV2_SOAK_S`` makes it another time."""

import itertools
import os
import random

import pytest
import torch
from soak_load import require_sound, soak

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: a load on graphs and two streams"
)

DURATION_S = float(os.environ.get("SPECV2_SOAK_S") or 600)
THRESHOLD = 6


def test_a_load_around_the_threshold(start_probed, texts):
    seed = int(os.environ.get("SPECV2_SEED") or random.randrange(10**6))
    print(f"SPECV2_SEED={seed}")
    server = start_probed(
        *("--speculative-disable-batch-threshold", str(THRESHOLD)),
        *("--speculative-switch-min-dwell", "4", "--constrained-json-disable-any-whitespace"),
    )
    outcome = soak(server, texts, THRESHOLD, DURATION_S, seed)

    require_sound(server, outcome)
    modes = [step.speculative for step in server.new_steps()]
    assert sum(a != b for a, b in itertools.pairwise(modes)) > DURATION_S / 10
