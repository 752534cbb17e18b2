"""The measured policy on simulated servers: step times and acceptance that are known."""

import random
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sglang_specv2.errors import BatchShapeError, ConfigError
from sglang_specv2.policy import Acceptance, AutoPolicy, Cause, CostModel, Mode, Point
from sglang_specv2.policy.acceptance import HALF_LIFE_PLAIN_STEPS
from sglang_specv2.policy.cost import undisturbed

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
MARGIN, DWELL = 0.02, 8

# Seconds of a speculative step of two draft steps at batch size 1, and how many more for each
# request more; a plain step takes 5 ms and 0.01 ms. All as functions of the batch size.
CURVES = {
    "convex": lambda n: 7.5e-3 + 2.5e-4 * n,
    "flat and fast": lambda n: 7e-3,
    "flat and slow": lambda n: 20e-3,
    "crossing twice": lambda n: 8e-3 if n < 12 or n > 48 else 14e-3,
}


def plain_s(n):
    return 5e-3 + 1e-5 * n


def cost_model(curve, noise=0.0, seed=0, choices=(0, 2)):
    rng = random.Random(seed)

    def measured(time):
        return time * (1 + rng.uniform(-noise, noise))

    points = []
    for size in SIZES:
        for context in (100 * size, 1000 * size):
            times = {0: measured(plain_s(size)), 2: measured(curve(size))}
            if 1 in choices:
                times[1] = measured((plain_s(size) + curve(size)) / 2)
            points.append(Point(size, context, times))
    return CostModel(points, resume_s=1e-3)


@dataclass
class Server:
    """Runs steps as a policy says; a draft is accepted with the rate of the phase.

    With ``alike`` a step's outcome is the same for every request, as where SGLang simulates it.
    """

    policy: AutoPolicy
    curve: object
    seed: int = 1
    alike: bool = False
    tokens: float = 0.0
    expected_tokens: float = 0.0
    seconds: float = 0.0
    switches: int = 0
    modes: list = field(default_factory=list)

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        self.waiting = []

    def step(self, n, rate):
        decision = self.policy.decide(n, 300 * n)
        # The outcome is known two steps later, as with overlap scheduling.
        if len(self.waiting) > 1:
            self.policy.acceptance.observe(*self.waiting.pop(0))
        if self.modes and decision.mode is not self.modes[-1]:
            self.switches += 1
            if decision.mode is Mode.SPECULATIVE:
                self.seconds += self.policy.cost.resume_s
        self.modes.append(decision.mode)
        if decision.mode is Mode.PLAIN:
            self.policy.acceptance.step_without_drafts()
            self.tokens += n
            self.expected_tokens += n
            self.seconds += plain_s(n)
            return decision
        if self.alike:
            accepted = [self.accepted(decision.steps, rate)] * n
        else:
            accepted = [self.accepted(decision.steps, rate) for _ in range(n)]
        self.waiting.append((n, accepted, decision.steps))
        self.tokens += n + sum(accepted)
        self.expected_tokens += n * sum(rate**place for place in range(decision.steps + 1))
        self.seconds += self.curve(n) if decision.steps == 2 else (plain_s(n) + self.curve(n)) / 2
        return decision

    def accepted(self, steps, rate):
        drafts = 0
        while drafts < steps and self.rng.random() < rate:
            drafts += 1
        return drafts

    def run(self, n, rate, steps):
        """Tokens a second of so many steps."""
        tokens, seconds = self.tokens, self.seconds
        for _ in range(steps):
            self.step(n, rate)
        return (self.tokens - tokens) / (self.seconds - seconds)


def server(name, *, noise=0.0, seed=0, choices=(0, 2), margin=MARGIN):
    curve = CURVES[name]
    acceptance = Acceptance(steps=2)
    policy = AutoPolicy(cost_model(curve, noise, seed, choices), acceptance, choices, margin, DWELL)
    return Server(policy, curve, seed)


def rate_for(speed_up, curve, n):
    """Of accepted drafts with which speculating is so much faster: 1 + r + r² tokens a step."""
    return (0.25 + speed_up * curve(n) / plain_s(n) - 1) ** 0.5 - 0.5


def best_fixed(curve, n, rate, choices=(0, 2)):
    speculative = {2: (1 + rate + rate * rate) / curve(n)}
    if 1 in choices:
        speculative[1] = (1 + rate) / ((plain_s(n) + curve(n)) / 2)
    return n * max(1 / plain_s(n), *speculative.values())


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("choices", [(0, 2), (0, 1, 2)])
def test_regret_in_each_phase(name, choices):
    """Batch size and acceptance change by phase; after warm-up at most 2 % behind the best."""
    s = server(name, choices=choices)
    for n, rate in [(1, 0.8), (64, 0.8), (4, 0.2), (16, 0.7), (128, 0.3), (8, 0.9), (32, 0.5)]:
        s.run(n, rate, 3000)  # Warm-up: long enough for a probe to find out.
        assert s.run(n, rate, 3000) >= 0.98 * best_fixed(s.curve, n, rate, choices)
    assert s.switches < 400


@pytest.mark.parametrize("n", [8, 16, 24])
def test_regret_where_the_requests_of_a_step_are_alike(n):
    """Speculation is a tenth faster; one step says as little as that of a single request."""
    rate = rate_for(1.1, CURVES["convex"], n)
    reached = []
    for seed in range(4):
        s = server("convex", seed=seed)
        s.alike = True
        s.run(n, rate, 500)
        reached.append(s.run(n, rate, 4000) / best_fixed(s.curve, n, rate))
    assert sum(reached) / len(reached) >= 0.98


@settings(max_examples=100)
@given(
    name=st.sampled_from(sorted(CURVES)),
    walk=st.lists(
        st.tuples(st.integers(1, 128), st.floats(0, 1), st.integers(1, 300)), min_size=1, max_size=8
    ),
)
def test_never_slower_than_the_worse_mode_by_more_than_the_probe_budget(name, walk):
    s = server(name)
    worst_seconds = 0.0
    for n, rate, steps in walk:
        worse = n * min(1 / plain_s(n), (1 + rate + rate * rate) / s.curve(n))
        before = s.expected_tokens  # What was accepted in fact has its luck.
        s.run(n, rate, steps)
        worst_seconds += (s.expected_tokens - before) / worse
    assert s.seconds <= 1.01 * worst_seconds + 5 * s.policy.cost.resume_s


def test_probes_cost_less_than_a_hundredth():
    s = server("convex")
    s.run(64, 0.9, 2000)  # Off: 23.5 ms for at most three tokens of 5.6 ms.
    before, tokens, probes = s.seconds, s.tokens, s.policy.probes
    s.run(24, 0.3, 20_000)
    assert s.policy.probes > probes
    plain_only = (s.tokens - tokens) / 24 * plain_s(24)
    assert s.seconds - before <= 1.01 * plain_only


def test_no_probe_where_even_all_drafts_accepted_would_lose():
    s = server("flat and slow")
    s.run(4, 0.9, 20_000)
    assert s.policy.probes == 0
    assert set(s.modes[-10_000:]) == {Mode.PLAIN}


def test_a_probe_finds_that_acceptance_came_back():
    s = server("convex")
    s.run(16, 0.05, 3000)
    assert s.modes[-1] is Mode.PLAIN
    s.run(16, 0.95, 6000)
    assert s.modes[-1000:].count(Mode.PLAIN) <= 10, "one probe of plain steps at most"


def test_the_more_probes_lose_the_rarer_they_are():
    probes = {}
    for rate in (0.1, 0.5):
        s = server("convex")
        s.run(24, rate, 5000)
        before = s.policy.probes
        s.run(24, rate, 50_000)
        probes[rate] = s.policy.probes - before
    assert 5 < probes[0.1] < 0.8 * probes[0.5]


@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_the_way_into_a_probe_and_out_of_it_is_its_own_and_no_other(rate):
    """With a low rate a probe of drafts while off, with a high one of plain steps while on."""
    s = server("convex")
    s.run(8, rate, 2000)
    kept = s.modes[-1]
    decisions = [s.step(8, rate) for _ in range(10_000)]
    ends = [i for i in range(1, 10_000) if decisions[i].switched and decisions[i].mode is kept]
    assert ends
    for end in ends:
        assert decisions[end - 1].cause is Cause.PROBE
        assert decisions[end].cause is Cause.PROBE
        assert decisions[end + 1].cause is Cause.ESTIMATE


def test_plain_steps_are_probed_ever_more_rarely_while_speculation_wins():
    s = server("convex")
    s.run(8, 0.8, 2000)
    probed = []
    for _ in range(3):
        before = s.policy.probes
        rate = s.run(8, 0.8, 20_000)
        probed.append(s.policy.probes - before)
        assert rate >= 0.995 * 8 * 2.44 / CURVES["convex"](8)
    assert probed[0] > probed[1] >= probed[2] >= 1


def test_after_a_switch_plain_steps_are_probed_as_soon_as_at_first():
    s = server("convex")
    for _ in range(2):
        s.run(8, 0.0, 3000)  # Off; then on again.
        s.run(8, 0.8, 3000)
        before = s.policy.probes
        s.run(8, 0.8, 5000)
        assert s.policy.probes > before


def test_a_probe_ends_where_more_drafts_can_win_no_more():
    """A probe of two drafts begins at 8 requests, with one in force; then 56 more join."""
    s = server("convex", choices=(0, 1, 2))
    decision = s.step(8, 0.5)
    while not (decision.cause is Cause.PROBE and decision.steps == 2):
        decision = s.step(8, 0.5)
    decisions = [s.step(64, 0.5) for _ in range(20)]
    assert decisions[0].steps != 2
    assert [d.cause for d in decisions].count(Cause.PROBE) <= 1, "the way out"


def test_batch_sizes_that_take_turns_are_both_looked_at():
    s = server("convex")
    s.run(8, 0.05, 3000)
    before = s.policy.probes
    for step in range(30_000):
        s.step(8 if step % 2 else 128, 0.05)
    assert s.policy.probes > before + 5


def test_hysteresis_is_the_margin():
    """Between the two crossings the mode stays what it was."""
    at = [n for n in range(1, 129) if abs((2.2 / CURVES["convex"](n)) * plain_s(n) - 1.01) < 0.008]
    n = at[0]
    up, down = server("convex"), server("convex")
    for s, first in ((up, 1), (down, 128)):
        for _ in range(300):
            s.policy.acceptance.observe(n, [1, 2, 2, 0, 1], 2)
        s.policy.decide(first, 300 * first)
        for _ in range(2 * DWELL):
            last = s.policy.decide(n, 300 * n)
        if first == 1:
            assert last.mode is Mode.SPECULATIVE, last.reason
        else:
            assert last.mode is Mode.PLAIN, last.reason


def test_the_dwell_holds_where_little_is_lost():
    """By one mode or the other, less than a plain step in all of the dwell."""
    s = server("convex", margin=0.0)
    switched = []
    for step in range(400):
        n = 8 if step % 2 else 12
        decision = s.policy.decide(n, 300 * n)
        if decision.switched and decision.cause is Cause.ESTIMATE:
            switched.append(step)
    assert len(switched) > 10
    assert min(b - a for a, b in pairwise(switched)) >= DWELL


def test_the_dwell_ends_when_it_has_cost_a_plain_step():
    """A batch of many joins just after a switch: 39.5 ms a step in place of 6.3."""
    s = server("convex", margin=0.0)
    s.policy.decide(128, 300 * 128)
    assert s.policy.decide(1, 300).switched
    modes = [s.policy.decide(128, 300 * 128).mode for _ in range(3)]
    assert modes == [Mode.PLAIN] * 3


def test_the_dwell_holds_where_resuming_costs_more_than_a_plain_step():
    points = cost_model(CURVES["convex"]).points
    policy = AutoPolicy(CostModel(list(points), resume_s=1.0), Acceptance(2), (0, 2), 0.0, DWELL)
    policy.decide(128, 300 * 128)
    assert policy.decide(1, 300).switched
    modes = [policy.decide(128, 300 * 128).mode for _ in range(DWELL)]
    assert modes == [Mode.SPECULATIVE] * (DWELL - 1) + [Mode.PLAIN]


def test_the_reason_is_in_numbers():
    decision = server("convex").policy.decide(2, 600)
    assert decision.steps == 2
    assert decision.reason == (
        "batch size 2: 1.96 tokens in 8.00 ms with 2 draft steps, one in 5.02 ms without: "
        "speed-up 1.23"
    )


def test_two_policies_that_saw_the_same_decide_the_same():
    one, other = server("convex"), server("convex")
    rng = random.Random(3)
    for _ in range(2000):
        n, rate = rng.randint(1, 128), rng.random()
        assert one.step(n, rate) == other.step(n, rate)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"choices": (0,)}, "expected 0 and at least one more of"),
        ({"choices": (1, 2)}, "expected 0 and at least one more of"),
        ({"choices": (0, 3)}, "got (0, 3)"),
        ({"margin": -0.1}, "margin: expected a number from 0 to 1, got -0.1"),
        ({"margin": "x"}, "got 'x'"),
        ({"min_dwell": -1}, "minimum dwell: expected a whole number"),
    ],
)
def test_impossible_values_are_refused(change, words):
    values = {"choices": (0, 2), "margin": MARGIN, "min_dwell": DWELL} | change
    with pytest.raises(ConfigError) as error:
        AutoPolicy(cost_model(CURVES["convex"]), Acceptance(2), **values)
    assert words in str(error.value)


def test_an_empty_batch_is_refused():
    with pytest.raises(BatchShapeError):
        server("convex").policy.decide(0, 0)


def test_acceptance_starts_from_the_prior_and_learns_each_place():
    acceptance = Acceptance(steps=2)
    assert acceptance.accept_length(4, 2) == pytest.approx(1.96)
    for _ in range(40):
        acceptance.observe(4, [2, 1, 0, 0], 2)  # r1 = 1/2, r2 = 1/2
    assert acceptance.accept_length(4, 1) == pytest.approx(1.5, abs=0.02)
    assert acceptance.accept_length(4, 2) == pytest.approx(1.75, abs=0.03)


def test_one_draft_step_tells_nothing_of_the_second():
    acceptance = Acceptance(steps=2)
    acceptance.observe(4, [2, 2, 1, 0] * 100, 2)
    second = acceptance.accept_length(4, 2) - acceptance.accept_length(4, 1)
    first = acceptance.accept_length(4, 1) - 1
    for _ in range(500):
        acceptance.observe(4, [1] * 8, 1)
    assert acceptance.accept_length(4, 1) == pytest.approx(2, abs=0.02)
    assert acceptance.accept_length(4, 2) - acceptance.accept_length(4, 1) == pytest.approx(
        second / first, rel=0.05
    )


def test_other_batch_sizes_are_believed_until_a_bucket_has_its_own():
    acceptance = Acceptance(steps=2)
    for _ in range(200):
        acceptance.observe(64, [2] * 64, 2)
    assert acceptance.accept_length(1, 2) > 2.9
    for _ in range(200):
        acceptance.observe(1, [0], 2)
    assert acceptance.accept_length(1, 2) < 1.2
    assert acceptance.accept_length(64, 2) > 2.5


def test_one_step_of_many_alike_says_little():
    acceptance = Acceptance(steps=2)
    for _ in range(200):
        acceptance.observe(4, [1] * 4, 2)
    acceptance.observe(64, [0] * 64, 2)
    assert acceptance.accept_length(64, 2) > 1.7


def test_after_a_long_time_without_drafts_one_unlucky_step_does_not_decide_alone():
    acceptance = Acceptance(steps=2)
    for _ in range(500):
        acceptance.observe(1, [2], 2)
    for _ in range(60_000):
        acceptance.step_without_drafts()
    acceptance.observe(1, [0], 2)
    assert acceptance.accept_length(1, 2) > 2.5


@pytest.mark.parametrize("plain_steps", [0, 10**4, 10**9])
def test_a_draft_that_never_hits_can_be_estimated_for_ever(plain_steps):
    acceptance = Acceptance(steps=2)
    for _ in range(3000):
        acceptance._plain_steps += plain_steps
        acceptance.observe(4, [0] * 4, 2)
    assert acceptance.accept_length(4, 2) == pytest.approx(1)
    assert acceptance.accept_length(64, 1) == pytest.approx(1)


def test_what_was_seen_before_many_plain_steps_counts_less():
    fresh, old = Acceptance(steps=2), Acceptance(steps=2)
    for acceptance in (fresh, old):
        for _ in range(200):
            acceptance.observe(4, [2] * 4, 2)
    for _ in range(3 * HALF_LIFE_PLAIN_STEPS):
        old.step_without_drafts()
    assert old.accept_length(4, 2) == fresh.accept_length(4, 2)
    for acceptance in (fresh, old):
        for _ in range(12):
            acceptance.observe(4, [0] * 4, 2)
    assert old.accept_length(4, 2) < 2 < fresh.accept_length(4, 2)


def test_what_nobody_counts_changes_nothing():
    acceptance = Acceptance(steps=2)
    acceptance.observe(8, [], 2)
    assert acceptance.accept_length(8, 2) == pytest.approx(1.96)


def test_step_times_between_and_beyond_the_points():
    model = cost_model(CURVES["convex"])
    assert model.step_s(0, 8, 8 * 100) == pytest.approx(plain_s(8))
    assert model.step_s(2, 12, 12 * 300) == pytest.approx(CURVES["convex"](12))
    assert model.step_s(2, 256, 256 * 300) == pytest.approx(CURVES["convex"](256))


def test_more_context_takes_longer_and_noise_does_not_make_it_faster():
    points = [
        Point(4, 400, {0: 5e-3, 2: 8e-3}),
        Point(4, 4000, {0: 6e-3, 2: 7.9e-3}),
    ]
    model = CostModel(points, 0.0)
    assert model.step_s(0, 4, 2200) == pytest.approx(5.5e-3)
    assert model.step_s(0, 4, 7600) == pytest.approx(7e-3)
    assert model.step_s(2, 4, 9000) == pytest.approx(8e-3)
    assert model.step_s(0, 4, 0) >= 0.9 * 5e-3


def test_a_disturbed_point_takes_the_next_larger_ones_time():
    def point(size, context, plain):
        return Point(size, size * context, {0: plain, 2: 2 * plain})

    measured = [
        *(point(1, 128, 5e-3), point(1, 2048, 6e-3)),
        *(point(8, 128, 9e-3), point(8, 2048, 6.5e-3)),
        *(point(12, 128, 5.2e-3), point(12, 2048, 7e-3)),
    ]
    mended = undisturbed(measured)
    assert [p.step_s[0] for p in mended] == [5e-3, 6e-3, 5.2e-3, 6.5e-3, 5.2e-3, 7e-3]
    assert [(p.batch_size, p.context_tokens) for p in mended] == [
        (p.batch_size, p.context_tokens) for p in measured
    ]


def test_step_times_survive_json():
    model = cost_model(CURVES["convex"], choices=(0, 1, 2))
    again = CostModel.from_dict(model.as_dict())
    assert again.points == model.points
    assert again.resume_s == model.resume_s


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda data: data["points"].clear(), "expected at least one batch size"),
        (lambda data: data["points"].pop(), "expected two contexts for batch size 128"),
        (lambda data: data["points"][0]["step_s"].pop("2"), "the same draft steps"),
        (lambda data: data["points"][0]["step_s"].update({"2": -1}), "expected positive seconds"),
        (lambda data: data["points"][0]["step_s"].update({"2": "fast"}), "could not convert"),
        (lambda data: data.pop("resume_s"), "KeyError: 'resume_s'"),
        (lambda data: data.update(points=None), "NoneType"),
    ],
)
def test_broken_step_times_are_refused(break_it, words):
    data = cost_model(CURVES["convex"]).as_dict()
    break_it(data)
    with pytest.raises(ConfigError) as error:
        CostModel.from_dict(data)
    assert words in str(error.value)
    assert "calibrate again" in str(error.value)
