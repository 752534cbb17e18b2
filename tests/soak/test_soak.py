"""Two minutes of random load around the threshold; ``SPECV2_SOAK_S`` makes it longer."""

import itertools
import os
import random

from soak_load import require_sound, soak
from worker_scenarios import THRESHOLD, follows_the_threshold

DURATION_S = float(os.environ.get("SPECV2_SOAK_S") or 120)


def test_a_load_around_the_threshold(server, texts):
    seed = int(os.environ.get("SPECV2_SEED") or random.randrange(10**6))
    print(f"SPECV2_SEED={seed}")
    server.new_steps()
    outcome = soak(server, texts, THRESHOLD["disable_above"], DURATION_S, seed)

    require_sound(server, outcome)
    steps = server.new_steps()
    assert follows_the_threshold(steps)
    modes = [step.speculative for step in steps]
    assert sum(a != b for a, b in itertools.pairwise(modes)) > DURATION_S / 10
