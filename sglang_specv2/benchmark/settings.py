"""What a benchmark was asked to do, checked before anything starts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sglang_specv2.benchmark.arms import ARMS, DEFAULT_ARMS, RECOVERY_ARMS
from sglang_specv2.benchmark.load import TIMELINES, Load
from sglang_specv2.benchmark.workloads import WORKLOADS
from sglang_specv2.errors import ConfigError

CLIENTS = ("auto", "bench_serving", "own")


@dataclass(frozen=True)
class Settings:
    """Fields are the options of ``sglang-specv2 bench``; times in seconds.

    Attributes:
        arms: names, in the order in which they run.
        levels: clients of the closed loop.
        rates: Poisson arrivals, requests a second.
        rounds: of every level and rate.
        workload: kind of prompt.
        output_tokens: of each request, at most where ``natural``.
        natural: answers end where the model ends them.
        requests_per_client: of the closed loop in a round.
        poisson_s: for how long requests arrive in a round.
        prompt_tokens: of random prompts.
        threshold, tier_from: see :class:`sglang_specv2.benchmark.arms.Choices`.
        simulate_accept_length: tokens per verify that SGLang pretends; None: what the draft gets.
        side_by_side: all servers at once, each level of each round on every arm before the next.
        client: who sends the load that both clients can make.
        timelines: loads that change as time goes by, each ``timeline_s`` long.
        timeline_rounds: of each of them.
        recovery_plain_tokens: lengths of the periods without speculation; empty: not measured.
        recovery_arms: on which that is measured.
        recovery_requests: whose acceptance is looked at, for each arm and length.
        recovery_matter: of them, at once.
        recovery_temperature: of their sampling.
        time_limit_s: for everything together; what does not fit is left out and named.
        start_timeout_s, round_timeout_s: after which a server or a round counts as hanging.
        look_period_s: how often a server is asked for its mode.
        server_flags: further flags of every server; they win.
        seed: of prompts, arrivals and resampling.
        cpu: whether the CPU engine serves.
    """

    arms: tuple[str, ...] = DEFAULT_ARMS
    levels: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    rates: tuple[float, ...] = ()
    rounds: int = 3
    workload: str = "random"
    output_tokens: int = 256
    natural: bool = False
    requests_per_client: int = 1
    poisson_s: float = 20.0
    prompt_tokens: int = 128
    threshold: int | None = None
    tier_from: int = 2
    simulate_accept_length: float | None = None
    attention_backend: str | None = None
    side_by_side: bool = False
    client: str = "auto"
    timelines: tuple[str, ...] = ("ramp",)
    timeline_s: float = 40.0
    timeline_rounds: int = 1
    recovery_plain_tokens: tuple[int, ...] = ()
    recovery_arms: tuple[str, ...] = RECOVERY_ARMS
    recovery_requests: int = 512
    recovery_matter: int = 32
    recovery_temperature: float = 0.8
    time_limit_s: float | None = None
    start_timeout_s: float = 600.0
    round_timeout_s: float = 300.0
    look_period_s: float = 1.0
    server_flags: tuple[str, ...] = ()
    seed: int = 1
    cpu: bool = False

    def __post_init__(self) -> None:
        """Raises ConfigError for what cannot be right."""
        _known("--arms", self.arms, ARMS)
        _known("--recovery-arms", self.recovery_arms, ARMS)
        _known("--workload", (self.workload,), WORKLOADS)
        _known("--client", (self.client,), CLIENTS)
        _known("--timeline", self.timelines, TIMELINES)
        _at_least("--levels", self.levels, 1)
        _at_least("--rates", self.rates, 0.001)
        _at_least("--recovery", self.recovery_plain_tokens, 1)
        for flag, value in (
            ("--rounds", self.rounds),
            ("--timeline-rounds", self.timeline_rounds),
            ("--output-tokens", self.output_tokens),
            ("--requests-per-client", self.requests_per_client),
            ("--prompt-tokens", self.prompt_tokens),
            ("--recovery-requests", self.recovery_requests),
            ("--recovery-matter", self.recovery_matter),
            ("--tier-from", self.tier_from),
            ("--threshold", 1 if self.threshold is None else self.threshold),
        ):
            _at_least(flag, (value,), 1)
        for flag, seconds in (
            ("--poisson-s", self.poisson_s),
            ("--timeline-s", self.timeline_s),
            ("--time-limit", 1.0 if self.time_limit_s is None else self.time_limit_s),
            ("--start-timeout", self.start_timeout_s),
            ("--round-timeout", self.round_timeout_s),
        ):
            _at_least(flag, (seconds,), 0.001)
        if self.timeline_rounds > 1 and not self.timelines:
            raise ConfigError("--timeline-rounds: expected a --timeline to repeat, got none")
        if not self.arms and not self.recovery_plain_tokens:
            raise ConfigError("nothing to measure: expected --arms or --recovery")
        simulated = self.simulate_accept_length
        if simulated is not None and not 1 <= simulated < math.inf:
            raise ConfigError(
                "--simulate-accept-len: expected tokens per verify, at least 1, got "
                f"{self.simulate_accept_length}"
            )

    @property
    def loads(self) -> list[Load]:
        """Every level and rate, in the order of a round."""
        closed = [Load("closed", level) for level in self.levels]
        return [*closed, *[Load("poisson", rate) for rate in self.rates]]

    @property
    def most_clients(self) -> int:
        """The largest batch that the speed measurements make."""
        return max(self.levels, default=1)

    def requests_of(self, load: Load) -> int:
        """Requests of one round."""
        if load.kind == "closed":
            return int(load.level) * self.requests_per_client
        return max(1, round(load.level * self.poisson_s))

    @property
    def recovery_threshold(self) -> int:
        """Batch size above which the recovery arms do not speculate.

        The requests that matter lie well within it: sglang-specv2 speculates again only an eighth
        below, and SGLang's adaptive worker looks at the padded batch size.
        """
        return self.recovery_matter + self.recovery_matter // 4 + 2

    @property
    def recovery_fillers(self) -> int:
        """Enough to be over the threshold by themselves."""
        return self.recovery_threshold + 1

    @property
    def recovery_batches(self) -> int:
        """Of each arm and length."""
        return -(-self.recovery_requests // self.recovery_matter)

    def as_dict(self) -> dict[str, Any]:
        """With plain types, as JSON gives them back, and what follows from them."""
        derived = {
            "recovery_batches": self.recovery_batches,
            "recovery_fillers": self.recovery_fillers,
            "recovery_threshold": self.recovery_threshold,
        }
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in (asdict(self) | derived).items()
        }


EXTENDABLE = frozenset(
    {
        *("arms", "levels", "rates", "rounds", "timelines", "timeline_rounds"),
        *(
            "recovery_plain_tokens",
            "recovery_requests",
            "recovery_batches",
            "recovery_arms",
            "time_limit_s",
            "start_timeout_s",
            "round_timeout_s",
        ),
    }
)
"""Fields that may change when a result folder is continued; the others make another comparison."""


def _known(flag: str, names: Sequence[str], known: Any) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"{flag} {name}: expected one of {', '.join(known)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"{flag}: expected each name once, got {', '.join(names)}")


def _at_least(flag: str, values: Sequence[float], least: float) -> None:
    for value in values:
        if not value >= least:  # NaN is neither.
            raise ConfigError(f"{flag}: expected at least {least}, got {value}")
