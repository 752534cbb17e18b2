"""Which servers a benchmark needs: one for each arm, more where a measure needs other flags."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sglang_specv2 import cpu
from sglang_specv2.benchmark.alignment import JOIN_TOKENS, WINDOW_STEPS
from sglang_specv2.benchmark.arms import ARMS, DRAFT_TOKENS, Arm, Choices
from sglang_specv2.benchmark.pairs import Pair
from sglang_specv2.benchmark.results import Results
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.workloads import WORKLOADS
from sglang_specv2.config import SWITCH

RECOVERY_TOKENS = JOIN_TOKENS + WINDOW_STEPS * DRAFT_TOKENS
"""Of a request, beside its prompt and the period without speculation."""

_EVERY_STEP_FLAGS = ("--stream-interval", "1", "--batch-notify-size", "1")
"""Each step's tokens leave the server before the next ones arrive, so that chunks are steps."""

_RECOVERY_SUFFIX = "-recovery"
_SIMULATE = "SGLANG_SIMULATE_ACC_LEN"
_SPARE_TOKENS = 64
_SHARED_MEMORY_FRACTION = "0.85"
"""Of what is free while a server starts; the KV pool is bounded by tokens beside it."""


@dataclass(frozen=True)
class _Room:
    """What a server has to hold: ``requests`` at once, each of ``request_tokens`` in the end."""

    requests: int
    request_tokens: int

    @property
    def tokens(self) -> int:
        return self.requests * (self.request_tokens + _SPARE_TOKENS)

    def and_also(self, other: _Room) -> _Room:
        return _Room(
            max(self.requests, other.requests), max(self.request_tokens, other.request_tokens)
        )


@dataclass
class Station:
    """A server to be, and what is measured on it.

    Attributes:
        name: of its log.
        command: without host and port.
        env: variables beside this process's own.
        speed, recovery: which measures.
    """

    name: str
    arm: Arm
    command: list[str]
    env: dict[str, str]
    speed: bool = False
    recovery: bool = False

    def environment(self) -> dict[str, str]:
        """Of the server process."""
        return {**_inherited(), **self.env}


def stations(
    settings: Settings,
    pair: Pair,
    recovery_pair: Pair,
    *,
    prompt_tokens: int,
    results: Results,
) -> list[Station]:
    """Every server, in the order of the arms; one that two measures can share comes once.

    Args:
        pair, recovery_pair: what is served for either measure.
        prompt_tokens: of the longest prompt.
        results: whose folder takes what a server reads.

    Raises:
        ConfigError: an arm lacks what it depends on.
    """
    speed = _Room(settings.most_clients, prompt_tokens + settings.output_tokens)
    longest = max(settings.recovery_plain_tokens, default=0) + RECOVERY_TOKENS
    recovery = _Room(settings.recovery_matter + settings.recovery_fillers, prompt_tokens + longest)
    recovery_flags = _EVERY_STEP_FLAGS
    speed_flags: tuple[str, ...] = ()
    if settings.cpu and recovery_pair == pair and settings.recovery_plain_tokens:
        # Speed means nothing here: the same flags for both measures, so that servers are shared.
        speed = recovery = speed.and_also(recovery)
        speed_flags = recovery_flags
    found: list[Station] = []
    for name in settings.arms:
        choices = Choices(settings.threshold, settings.tier_from, results.logs)
        command, env = _command(ARMS[name], settings, pair, choices, speed, speed_flags)
        found.append(Station(name, ARMS[name], command, env, speed=True))
    real = replace(settings, simulate_accept_length=None)
    threshold = settings.recovery_threshold
    for name in settings.recovery_arms if settings.recovery_plain_tokens else ():
        choices = Choices(threshold, threshold + 1, results.logs)
        command, env = _command(ARMS[name], real, recovery_pair, choices, recovery, recovery_flags)
        same = [station for station in found if (station.command, station.env) == (command, env)]
        if same:
            same[0].recovery = True
        else:
            taken = any(station.name == name for station in found)
            title = name + _RECOVERY_SUFFIX if taken else name
            found.append(Station(title, ARMS[name], command, env, recovery=True))
    return found


def _command(
    arm: Arm,
    settings: Settings,
    pair: Pair,
    choices: Choices,
    room: _Room,
    flags: Sequence[str],
) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "sglang.launch_server", *pair.flags]
    command += ["--max-running-requests", str(room.requests), "--log-level-http", "warning"]
    if settings.cpu:
        command += ["--device", "cpu"]
    else:
        command += ["--cuda-graph-max-bs-decode", str(room.requests)]
        if settings.attention_backend is not None:
            command += ["--attention-backend", settings.attention_backend]
    if settings.side_by_side:
        command += ["--sleep-on-idle", "--max-total-tokens", str(room.tokens)]
        if not settings.cpu:
            command += ["--mem-fraction-static", _SHARED_MEMORY_FRACTION]
    command += WORKLOADS[settings.workload].server_flags
    command += arm.arguments(pair.draft_flags, choices)
    command += [*settings.server_flags, *flags]
    env = {"PYTHONUNBUFFERED": "1", **arm.env}
    if settings.simulate_accept_length is not None:
        env[_SIMULATE] = str(settings.simulate_accept_length)
    if settings.cpu:
        inherited = _inherited()
        engine = cpu.environment(inherited)
        env |= {name: value for name, value in engine.items() if inherited.get(name) != value}
    return command, env


def _inherited() -> dict[str, str]:
    """This process's variables without settings of ours, which would overrule an arm's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(SWITCH)}
