"""What the target accepted lately."""

from __future__ import annotations

from collections.abc import Iterable

from sglang_specv2.policy.fading import STALE, FadingMean, bucket_of

PRIOR_RATE = 0.6
"""Share of drafts taken to be accepted, at each place of the chain, before any was seen.

With two draft steps: 1 + 0.6 + 0.36 = 1.96 tokens a step.
"""

HALF_LIFE_VERIFIES = 256
"""After so many verified requests, what was seen before counts half."""

MOST_OF_A_STEP = 4
"""Requests of one step count as at most so many: they are often alike, so that one step of many
says less than many steps."""

HALF_LIFE_PLAIN_STEPS = 512
"""After so many steps without drafts, what was seen before them counts half against what comes."""

_WEIGHT_OF_PRIOR = 8.0  # In verified requests.
_WEIGHT_OF_ALL = 16.0


class Acceptance:
    """Estimates accept lengths from the outcomes of verifies, by batch-size bucket.

    Kept are the conditional rates: of the requests whose first ``i`` drafts were accepted, how many
    had the next one accepted too. So an outcome of one draft step says what it can about two, and
    the accept length of ``k`` steps is ``1 + r1 + r1·r2 + … + r1···rk``. Buckets are powers of two;
    each leans on all of them together until it has seen enough itself. The prior fades like
    anything seen, and what is known of all together never counts less than the prior did: after a
    long time without drafts the first step does not decide alone.

    Args:
        steps: most draft steps of a verify.
        prior_rate: the rate before anything was seen.
    """

    def __init__(self, steps: int, prior_rate: float = PRIOR_RATE) -> None:
        prior = prior_rate * _WEIGHT_OF_PRIOR
        self._all = [FadingMean(prior, _WEIGHT_OF_PRIOR) for _ in range(steps)]
        self._buckets: dict[int, list[FadingMean]] = {}
        self._age = 0.0  # Of what is known of batch sizes other than those seen, in half-lives.
        self._plain_steps = 0  # Since the last observation.

    def observe(self, batch_size: int, accepted_drafts: Iterable[int], steps: int) -> None:
        """Enter one speculative step.

        Args:
            batch_size: requests in the step's batch.
            accepted_drafts: of each request that counts.
            steps: draft steps of that verify.
        """
        outcomes = list(accepted_drafts)
        if not outcomes:
            return
        own = self._bucket(batch_size)
        counted = min(len(outcomes), MOST_OF_A_STEP)
        share = counted / len(outcomes)
        older = counted / HALF_LIFE_VERIFIES + self._plain_steps / HALF_LIFE_PLAIN_STEPS
        self._plain_steps = 0
        for overall, rate in zip(self._all, own, strict=True):
            overall.fade(0.5**older, least=_WEIGHT_OF_PRIOR)
            rate.observed(self._age, older)
        self._age += older / STALE
        tried = len(outcomes)
        for overall, rate in zip(self._all[:steps], own, strict=False):
            # Of those that the target looked at at this place, the ones that it accepted.
            outcomes = [accepted - 1 for accepted in outcomes if accepted > 0]
            for rates in (overall, rate):
                rates.add(share * len(outcomes), share * tried)
            tried = len(outcomes)

    def step_without_drafts(self) -> None:
        """Enter a plain step."""
        self._plain_steps += 1

    def accept_length(self, batch_size: int, steps: int) -> float:
        """Expected tokens of a verify after ``steps`` draft steps, drafts and bonus token."""
        length, reach = 1.0, 1.0
        for overall, own in zip(self._all[:steps], self._bucket(batch_size), strict=False):
            reach *= own.estimate(overall.total / overall.seen, _WEIGHT_OF_ALL, self._age)
            length += reach
        return length

    def _bucket(self, batch_size: int) -> list[FadingMean]:
        key = bucket_of(batch_size)
        rates = self._buckets.get(key)
        if rates is None:
            rates = self._buckets[key] = [FadingMean(age=self._age) for _ in self._all]
        return rates
