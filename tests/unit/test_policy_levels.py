"""The measured policy in a benchmark: level after level, each a wave of requests that join.

Step times are those that a calibration measured on one H200 (shape of Llama-3.1-8B, EAGLE-3, two
draft steps). Accept lengths are drawn once per step for the whole batch, as SGLang simulates them,
which is where ``auto`` once missed on fa3; on triton it once held on to speculation while requests
joined.
"""

import random
import statistics
from dataclasses import dataclass, field

import pytest

from sglang_specv2.policy import Acceptance, AutoPolicy, CostModel, LiveCost, Mode, Point

LEVELS = (1, 4, 8, 16, 32, 64, 128)
OUTPUT_TOKENS = 256
CONTEXTS = (128, 2048)

# Milliseconds of a plain and of a speculative step by batch size, and of resuming.
FA3 = (
    {1: 4.81, 4: 4.85, 8: 4.90, 16: 4.98, 32: 5.27, 64: 5.81, 128: 6.83},
    {1: 5.61, 4: 5.67, 8: 5.74, 16: 5.98, 32: 6.47, 64: 8.09, 128: 11.98},
    2.5,
)
TRITON = (
    {1: 4.69, 4: 4.72, 8: 4.83, 16: 5.04, 32: 5.29, 64: 5.63, 128: 6.51},
    {1: 5.88, 4: 6.09, 8: 6.69, 16: 7.83, 32: 10.08, 64: 15.22, 128: 26.27},
    0.8,
)


def measured(times):
    plain, speculative, resume_ms = times
    points = [
        Point(size, size * context, {0: plain[size] / 1e3, 2: speculative[size] / 1e3})
        for size in plain
        for context in CONTEXTS
    ]
    return CostModel(points, resume_ms / 1e3)


def joined(level, step):
    """Requests that have joined by then: a quarter, half, all of them, two steps apart."""
    return level if step >= 4 or level == 1 else max(1, level * (step // 2 + 1) // 4)


@dataclass
class Arm:
    """Decodes waves of requests; ``decide`` says whether a step of so many speculates."""

    decide: object
    cost: CostModel
    accept_length: float
    seed: int
    acceptance: Acceptance | None = None
    waiting: list = field(default_factory=list)

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def drafts(self):
        lower = int(self.accept_length)
        return lower - 1 + (self.rng.random() < self.accept_length - lower)

    def rate(self, level):
        """Tokens a second of a wave, had every verify given the accept length exactly."""
        left, arrived, step, tokens, seconds, was = [], 0, 0, 0.0, 0.0, None
        while arrived < level or left:
            left += [OUTPUT_TOKENS] * (joined(level, step) - arrived)
            arrived = joined(level, step)
            n, context = len(left), sum(128 + OUTPUT_TOKENS - tokens_left for tokens_left in left)
            speculates = self.decide(n, context)
            seconds += self.cost.step_s(2 if speculates else 0, n, context)
            seconds += self.cost.resume_s if speculates and was is False else 0.0
            tokens += n * (self.accept_length if speculates else 1)
            drafts = self.drafts() if speculates else 0
            self.outcome(n, drafts, speculates)
            left = [rest for tokens_left in left if (rest := tokens_left - 1 - drafts) > 0]
            was, step = speculates, step + 1
        return tokens / seconds

    def outcome(self, n, drafts, speculates):
        """It is known two steps later, as with overlap scheduling."""
        if self.acceptance is None:
            return
        if speculates:
            self.waiting.append((n, [drafts] * n, 2))
        else:
            self.acceptance.step_without_drafts()
        if len(self.waiting) > 2:
            self.acceptance.observe(*self.waiting.pop(0))


def reached(times, accept_length, seed, rounds=4):
    """By level: the median of ``auto`` over the better of never and always."""
    cost, acceptance = measured(times), Acceptance(2)
    policy = AutoPolicy(LiveCost(cost), acceptance, (0, 2), 0.02, 8)
    auto = Arm(
        lambda n, context: policy.decide(n, context).mode is Mode.SPECULATIVE,
        cost,
        accept_length,
        seed,
        acceptance,
    )
    fixed = [Arm(lambda n, context, on=on: on, cost, accept_length, seed) for on in (False, True)]
    ratios = {level: [] for level in LEVELS}
    for _ in range(rounds):
        for level in LEVELS:
            ratios[level].append(auto.rate(level) / max(arm.rate(level) for arm in fixed))
    return {level: statistics.median(found) for level, found in ratios.items()}


@pytest.mark.parametrize(
    ("times", "accept_length"), [(FA3, 1.4), (FA3, 2.2), (TRITON, 1.4), (TRITON, 2.2)]
)
def test_near_the_better_of_both_modes_at_every_level(times, accept_length):
    runs = [reached(times, accept_length, seed) for seed in range(6)]

    for level in LEVELS:
        found = [run[level] for run in runs]
        # On triton with 1.4 the modes are 5 % apart at 4 requests: luck of the draw says which.
        each, mean = (0.93, 0.97) if (times, level) == (TRITON, 4) else (0.95, 0.98)
        assert min(found) >= each, level
        assert statistics.fmean(found) >= mean, level
