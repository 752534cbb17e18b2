"""Step times that are corrected while serving, and the clock that they come from."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_policy_auto import (
    CURVES,
    DWELL,
    MARGIN,
    Server,
    best_fixed,
    cost_model,
    plain_s,
    rate_for,
)

from sglang_specv2.policy import Acceptance, AutoPolicy, CostModel, LiveCost, Mode, Point
from sglang_specv2.step_clock import StepClock
from sglang_specv2.step_learning import EVERY_STEPS, StepLearning


def measured(factors, curve=CURVES["convex"], noise=0.0, seed=0):
    """Step times that are wrong by a factor for each number of draft steps, and by noise."""
    right = cost_model(curve, noise, seed, tuple(factors))
    points = [
        Point(p.batch_size, p.context_tokens, {k: t * factors[k] for k, t in p.step_s.items()})
        for p in right.points
    ]
    return CostModel(points, right.resume_s)


class Clock:
    """Goes on by what it is told."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


def begin(clock, times, kinds, *, overlap):
    """What a step clock says at the beginning of each step; ``times`` by draft steps."""
    steps = StepClock(clock)
    for n, kind in enumerate(kinds):
        yield steps.began(kind, 8, 100 * n)
        # With overlap the next step begins when the one before this one has ended.
        clock.seconds += times[kinds[max(0, n - 1)] if overlap else kind]


@pytest.mark.parametrize("overlap", [True, False])
def test_a_step_is_timed_in_the_middle_of_its_kind(clock, overlap):
    kinds = [0, 0, 0, 0, 2, 2, 2, 2, 2, 0, 0]
    timed = [*begin(clock, {0: 5.0, 2: 8.0}, kinds, overlap=overlap)]

    assert [t and (t.steps, pytest.approx(t.taken_s)) for t in timed] == [
        *(None, None, None),
        *((0, 5.0), (0, 5.0)),
        *(None, None),
        *((2, 8.0), (2, 8.0), (2, 8.0)),
        None,
    ]
    assert timed[3].context_tokens == 200, "that of the step that was timed"


def test_no_step_is_timed_across_something_else(clock):
    steps = StepClock(clock)
    for _ in range(3):
        assert steps.began(0, 8, 0) is None
    steps.interrupted()
    clock.seconds += 100
    assert steps.began(0, 8, 0) is None


def test_another_bucket_of_batch_sizes_is_another_kind(clock):
    steps = StepClock(clock)
    assert [steps.began(0, size, 0) for size in (8, 15, 16, 16, 17)] == [None] * 5
    assert steps.began(0, 16, 0) is not None


def test_at_first_times_are_those_measured():
    cost = LiveCost(measured({0: 1.0, 2: 1.0}))
    for args in ((0, 1, 100), (2, 64, 900), (2, 200, 10)):
        assert cost.step_s(*args) == cost.measured.step_s(*args)
    assert (cost.steps, cost.resume_s) == (cost.measured.steps, cost.measured.resume_s)
    assert cost.factors() == {}


def test_what_was_seen_counts_once_it_is_in_force():
    cost = LiveCost(measured({0: 1.0, 2: 1.0}))
    before = cost.step_s(2, 8, 800)
    for _ in range(500):
        cost.observe(2, 8, 800, 0.8 * before)
    assert cost.step_s(2, 8, 800) == before

    cost.put_in_force(cost.learned())

    assert cost.step_s(2, 8, 800) == pytest.approx(0.8 * before, rel=0.01)
    assert cost.step_s(2, 100, 800) == pytest.approx(
        0.8 * cost.measured.step_s(2, 100, 800), rel=0.01
    ), "a bucket that saw nothing takes that of all"
    assert cost.step_s(0, 8, 800) == cost.measured.step_s(0, 8, 800)
    assert cost.factors() == {"2": pytest.approx(0.8, abs=0.01)}


def test_a_bucket_of_its_own_mind_keeps_it():
    cost = LiveCost(measured({0: 1.0, 2: 1.0}))
    for _ in range(300):
        cost.observe(2, 8, 800, 0.8 * cost.measured.step_s(2, 8, 800))
        cost.observe(2, 64, 800, 1.2 * cost.measured.step_s(2, 64, 800))
    cost.put_in_force(cost.learned())

    assert cost.step_s(2, 8, 800) < 0.83 * cost.measured.step_s(2, 8, 800)
    assert cost.step_s(2, 64, 800) > 1.17 * cost.measured.step_s(2, 64, 800)


def factor_after(*observed, batch_size=8):
    """Of speculative steps: what their measured time is multiplied with after
    ``(draft steps, ratio, steps)``, at 8 requests unless a batch size is named too."""
    cost = LiveCost(measured({0: 1.0, 2: 1.0}))
    for draft_steps, ratio, steps, *size in observed:
        requests = size[0] if size else 8
        for _ in range(steps):
            expected_s = cost.measured.step_s(draft_steps, requests, 800)
            cost.observe(draft_steps, requests, 800, ratio * expected_s)
    cost.put_in_force(cost.learned())
    return cost.step_s(2, batch_size, 800) / cost.measured.step_s(2, batch_size, 800)


def test_a_slow_spell_counts_while_it_lasts_and_is_forgotten_when_no_step_confirms_it():
    long_quiet, spell = (2, 1.0, 5000), (2, 1.3, 100)
    assert factor_after(long_quiet, spell) > 1.2
    assert factor_after(long_quiet, spell, (0, 1.0, 600)) < 1.1
    assert factor_after(long_quiet, spell, batch_size=64) > 1.2, "a spell is one of the host"


def test_what_was_so_for_long_is_kept_while_no_step_contradicts_it():
    for_long, off = (2, 1.3, 5000), (0, 1.0, 4000)
    assert factor_after(for_long, off) == pytest.approx(1.3, rel=0.02)
    assert factor_after(for_long, off, (2, 1.0, 64)) < 1.1
    assert factor_after(for_long, (0, 1.0, 40_000)) < 1.05, "but not for ever"


def test_a_pause_hardly_counts():
    cost = LiveCost(measured({0: 1.0, 2: 1.0}))
    for n in range(400):
        cost.observe(0, 8, 800, cost.measured.step_s(0, 8, 800) if n % 100 else 5.0)
    cost.put_in_force(cost.learned())

    assert cost.step_s(0, 8, 800) == pytest.approx(cost.measured.step_s(0, 8, 800), rel=0.01)


def test_what_the_ranks_agree_on_is_put_in_force_now_and_then():
    asked, cost = [], LiveCost(measured({0: 1.0, 2: 1.0}))

    def agree(learned):
        asked.append(learned)
        return [(0, 0, 1.1)]

    seconds = iter(range(10 * EVERY_STEPS))
    learning = StepLearning(agree, StepClock(lambda: next(seconds)))
    for step in range(1, 2 * EVERY_STEPS + 1):
        learning.began(cost, 0, 8, 800)
        learning.launched()
        assert len(asked) == step // EVERY_STEPS
        assert cost.factors() == ({"0": 1.1} if asked else {})

    assert asked[0][0][:2] == (0, 0), "what this rank saw"


class LearningServer(Server):
    """A simulated server whose policy learns step times as the worker's does."""

    def __post_init__(self):
        super().__post_init__()
        clock = StepClock(lambda: self.began_s)
        self.learning = StepLearning(lambda learned: learned if self.learns else [], clock)
        self.learns = True

    def step(self, n, rate):
        self.began_s = self.seconds
        decision = super().step(n, rate)
        steps = 0 if decision.mode is Mode.PLAIN else decision.steps
        self.learning.began(self.policy.cost, steps, n, 300 * n)
        self.learning.launched()
        return decision


def learning_server(factors, seed=1, curve=CURVES["convex"], noise=0.0):
    """Its choices are those that have a factor."""
    cost = LiveCost(measured(factors, curve, noise, seed))
    policy = AutoPolicy(cost, Acceptance(steps=2), tuple(factors), MARGIN, DWELL)
    return LearningServer(policy, curve, seed)


@pytest.mark.parametrize("factors", [{0: 1.0, 2: 1.2}, {0: 0.85, 2: 1.0}, {0: 1.2, 2: 1.0}])
@pytest.mark.parametrize(("n", "rate"), [(8, 0.6), (16, 0.75), (24, 0.5), (4, 0.45)])
def test_regret_is_small_though_the_start_measured_wrong(factors, n, rate):
    learning = learning_server(factors)
    learning.run(n, rate, 40_000)

    assert learning.run(n, rate, 4000) >= 0.975 * best_fixed(learning.curve, n, rate)


@pytest.mark.parametrize("seed", range(5))
def test_regret_in_each_phase_though_every_point_was_measured_with_noise(seed):
    s = learning_server({0: 1.0, 2: 1.0}, seed, noise=0.03)
    for n, rate in [(1, 0.7), (16, 0.7), (24, 0.7), (64, 0.7)]:
        s.run(n, rate, 5000)
        assert s.run(n, rate, 5000) >= 0.98 * best_fixed(s.curve, n, rate)


def test_without_learning_the_same_start_costs_more():
    stuck = learning_server({0: 1.0, 2: 1.2})
    stuck.learns = False
    n, rate = 8, 0.63
    stuck.run(n, rate, 40_000)
    learning = learning_server({0: 1.0, 2: 1.2})
    learning.run(n, rate, 40_000)

    assert stuck.run(n, rate, 4000) < 0.95 * best_fixed(stuck.curve, n, rate)
    assert learning.run(n, rate, 4000) >= 0.98 * best_fixed(learning.curve, n, rate)


@pytest.mark.parametrize(
    ("slow_steps", "quiet_steps", "least"),
    [(100, 500, 0.96), (300, 1500, 1.0), (1500, 6000, 1.02), (6000, 20_000, 1.03)],
)
@pytest.mark.parametrize("speed_up", [1.08, 1.15])
def test_slow_spells_of_the_host(slow_steps, quiet_steps, least, speed_up):
    """Speculation pays but for spells in which its steps take 1.3 times as long: two of each. In
    long ones it pays to go off, and afterwards to come back soon: better than always on."""
    n, curve = 8, CURVES["convex"]
    rate = rate_for(speed_up, curve, n)
    reached = []
    for seed in range(3):
        s = learning_server({0: 1.0, 2: 1.0}, seed)
        s.run(n, rate, 2000)
        tokens, seconds = s.tokens, s.seconds
        for factor, steps in 2 * ((1.3, slow_steps), (1.0, quiet_steps)):
            s.curve = lambda n, factor=factor: factor * curve(n)
            s.run(n, rate, steps)
        reached.append((s.tokens - tokens) / (s.seconds - seconds))

    share = slow_steps / (slow_steps + quiet_steps)
    always = best_fixed(lambda n: (1 + 0.3 * share) * curve(n), n, rate)
    assert sum(reached) / len(reached) >= least * always


def test_what_corrected_a_start_is_kept_while_it_runs_no_more():
    """Plain steps were measured too fast at start; the first ones that are run say so."""
    s, n = learning_server({0: 0.7, 2: 1.0}), 8
    rate = rate_for(1.3, s.curve, n)
    s.run(n, rate, 3000)
    switches = s.switches

    assert s.run(n, rate, 10_000) >= 0.995 * best_fixed(s.curve, n, rate)
    assert s.switches - switches < 10


def test_one_batch_size_tells_another_that_a_spell_is_over():
    """A spell at 8 requests; then steps at one request are quick."""
    spell = (2, 1.0, 2000, 1), (2, 1.0, 2000), (2, 1.3, 100)

    assert factor_after(*spell) > 1.2
    assert factor_after(*spell, (2, 1.0, 150, 1)) < factor_after(*spell, (0, 1.0, 150, 1)) - 0.05


def flat(n):
    """Speculative steps that grow little with the batch: many requests, and speculation pays."""
    return 7.5e-3 + 3e-5 * n


@pytest.mark.parametrize("n", [64, 128])
def test_a_server_that_began_in_a_slow_spell_recovers_from_it(n):
    """The first hundred steps are all that is known of speculation, and probes are short here."""
    s, rate = learning_server({0: 1.0, 2: 1.0}, curve=flat), rate_for(1.1, flat, n)
    s.curve = lambda n: 1.4 * flat(n)
    s.run(n, rate, 100)
    s.curve = flat
    s.run(n, rate, 8000)

    assert s.run(n, rate, 4000) >= 0.99 * best_fixed(flat, n, rate)


def test_a_long_slow_time_is_forgotten_once_probes_contradict_it():
    """Speculation paid although it was slow; it stopped for its acceptance, not for its time."""
    s, n = learning_server({0: 1.0, 2: 1.0}, curve=flat), 64
    s.curve = lambda n: 1.5 * flat(n)
    s.run(n, rate_for(1.1 * 1.5, flat, n), 5000)
    assert s.modes[-1] is Mode.SPECULATIVE
    s.run(n, 0.05, 1500)
    s.curve = flat
    rate = rate_for(1.1, flat, n)
    s.run(n, rate, 15_000)

    assert s.run(n, rate, 4000) >= 0.99 * best_fixed(flat, n, rate)


@pytest.mark.parametrize(("n", "rate"), [(8, 0.1), (16, 0.2), (32, 0.4)])
def test_plain_steps_are_probed_from_the_middle_of_three_choices_too(n, rate):
    """One draft step is in force, by plain steps that were measured too slow."""
    s = learning_server({0: 1.45, 1: 1.0, 2: 1.0})
    s.run(n, rate, 20_000)

    assert s.run(n, rate, 4000) >= 0.97 * best_fixed(s.curve, n, rate, s.policy.choices)


@pytest.mark.parametrize("speed_up", [0.85, 0.75])
def test_a_start_that_measured_plain_steps_too_slow_is_found_out(speed_up):
    """Only a probe of plain steps can say so: by what was measured, speculation wins."""
    s, n = learning_server({0: 1.45, 2: 1.0}), 8
    rate = rate_for(speed_up, s.curve, n)
    before = s.run(n, rate, 1000)
    s.run(n, rate, 20_000)

    assert before < 0.9 * best_fixed(s.curve, n, rate)
    assert s.run(n, rate, 10_000) >= 0.99 * best_fixed(s.curve, n, rate)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_ranks_that_see_other_times_decide_alike(seed):
    rng = random.Random(seed)
    curve = CURVES["convex"]
    ranks = []
    for _ in range(2):
        cost = LiveCost(measured({0: 1.0, 2: 1.1}))
        ranks.append(AutoPolicy(cost, Acceptance(steps=2), (0, 2), MARGIN, DWELL))
    n = 8
    for step in range(1, 600):
        n = max(1, min(128, n + rng.choice([-2, -1, 0, 0, 0, 1, 2])))
        one, other = (rank.decide(n, 300 * n) for rank in ranks)
        assert one == other
        for rank in ranks:
            true_s = plain_s(n) if one.mode is Mode.PLAIN else curve(n)
            taken_s = true_s * rng.uniform(0.7, 1.4)
            rank.cost.observe(one.steps, n, 300 * n, taken_s)
            if one.mode is not Mode.PLAIN:
                rank.acceptance.observe(n, [step % 3] * n, 2)
        if step % 64 == 0:
            learned = ranks[0].cost.learned()
            for rank in ranks:
                rank.cost.put_in_force(learned)
