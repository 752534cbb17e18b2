"""The arms: one server each, alike but for how they speculate."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sglang_specv2.config import SWITCH
from sglang_specv2.errors import ConfigError
from sglang_specv2.introspection import STATE_KEY

SPECULATION_STEPS = 2
DRAFT_TOKENS = SPECULATION_STEPS + 1

_EAGLE = (
    *("--speculative-algorithm", "EAGLE3"),
    *("--speculative-num-steps", str(SPECULATION_STEPS), "--speculative-eagle-topk", "1"),
    *("--speculative-num-draft-tokens", str(DRAFT_TOKENS)),
)
_STOCK = {SWITCH: "0"}


@dataclass(frozen=True)
class Choices:
    """What the flags of some arms depend on.

    Attributes:
        threshold: batch size above which ``threshold`` stops speculating; None where not given.
        tier_from: batch size from which SGLang's adaptive arms are in their zero-step tier.
        folder: where an arm may write files that its server reads.
    """

    threshold: int | None
    tier_from: int
    folder: Path


@dataclass(frozen=True)
class Arm:
    """One server of the comparison.

    Attributes:
        name: on the command line and in files.
        title: in tables and figures.
        speculates: whether it is given a draft.
        policy: of our worker; None for a server without it.
        env: variables beside those of every arm.
        flags: further flags, given the choices.
        draft_sync: of our worker where the arm fixes it.
        adaptive: whether SGLang's own ``--speculative-adaptive`` has to be on.
        times_its_steps: at its start, which other servers should not disturb then.
    """

    name: str
    title: str
    speculates: bool
    policy: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    flags: Callable[[Choices], Sequence[str]] = lambda choices: ()
    draft_sync: str | None = None
    adaptive: bool = False
    times_its_steps: bool = False

    def arguments(self, draft_flags: Sequence[str], choices: Choices) -> list[str]:
        """Its flags of ``sglang serve``.

        Args:
            draft_flags: those that name the draft, for arms that speculate.

        Raises:
            ConfigError: it needs a choice that was not made.
        """
        speculation = [*_EAGLE, *draft_flags] if self.speculates else []
        return [*speculation, *self.flags(choices)]

    def difference(self, server_info: Mapping[str, Any]) -> str | None:
        """Why a server is not this arm, from ``/server_info``; None where it is.

        SGLang swallows what a plugin raises and turns unsupported options off, so a name proves
        nothing.
        """
        state = server_info["internal_states"][0].get(STATE_KEY)
        if self.policy is None and state is not None:
            return "expected SGLang's own worker, found sglang-specv2's"
        if self.policy is not None and state is None:
            return "expected sglang-specv2's worker, found SGLang's own: the plugin did not load"
        expected = {"policy": self.policy, "draft_sync": self.draft_sync}
        for key, value in expected.items():
            if state is not None and value is not None and state[key] != value:
                return f"expected {key} {value}, found {state[key]}"
        if bool(server_info.get("speculative_algorithm")) != self.speculates:
            found = server_info.get("speculative_algorithm")
            return f"expected {'EAGLE3' if self.speculates else 'no speculation'}, found {found}"
        if bool(server_info.get("speculative_adaptive")) != self.adaptive:
            word = "on" if self.adaptive else "off"
            return f"expected --speculative-adaptive {word}; SGLang turned it the other way"
        return None


def _dynamic(value: str) -> Callable[[Choices], Sequence[str]]:
    return lambda choices: ("--speculative-dynamic", value)


def _threshold(choices: Choices) -> Sequence[str]:
    if choices.threshold is None:
        raise ConfigError(
            "the arm threshold needs --threshold N: the batch size above which it stops "
            "speculating; it lies where the arms none and stock cross"
        )
    return ("--speculative-disable-batch-threshold", str(choices.threshold))


def _adaptive(choices: Choices) -> Sequence[str]:
    tiers = {
        "1": {"candidate_steps": [SPECULATION_STEPS]},
        str(choices.tier_from): {"candidate_steps": [0]},
    }
    file = choices.folder / f"adaptive-from-{choices.tier_from}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tiers) + "\n", encoding="utf-8")
    return ("--speculative-adaptive", "--speculative-adaptive-config", str(file))


ARMS: dict[str, Arm] = {
    arm.name: arm
    for arm in (
        Arm("none", "no speculation", speculates=False, env=_STOCK),
        Arm("stock", "EAGLE-3 always on, SGLang", speculates=True, env=_STOCK),
        Arm(
            "adaptive-warm",
            "SGLang adaptive",
            speculates=True,
            env=_STOCK,
            flags=_adaptive,
            adaptive=True,
        ),
        Arm(
            "adaptive-cold",
            "SGLang adaptive, cold",
            speculates=True,
            env={**_STOCK, "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND": "1"},
            flags=_adaptive,
            adaptive=True,
        ),
        Arm(
            "threshold",
            "sglang-specv2, threshold",
            speculates=True,
            policy="threshold",
            flags=_threshold,
        ),
        Arm(
            "auto",
            "sglang-specv2, auto",
            speculates=True,
            policy="auto",
            flags=_dynamic("auto"),
            times_its_steps=True,
        ),
        Arm("off", "sglang-specv2, off", speculates=True, policy="never", flags=_dynamic("never")),
        Arm(
            "always",
            "sglang-specv2, always on",
            speculates=True,
            policy="always",
            flags=_dynamic("always"),
        ),
        Arm(
            "threshold-unsynced",
            "sglang-specv2, draft sync off",
            speculates=True,
            policy="threshold",
            flags=lambda choices: (*_threshold(choices), "--speculative-draft-sync", "off"),
            draft_sync="off",
        ),
    )
}

DEFAULT_ARMS = ("none", "stock", "adaptive-warm", "adaptive-cold", "threshold", "auto")
RECOVERY_ARMS = ("stock", "threshold", "threshold-unsynced", "adaptive-cold")
WITHOUT_PLUGIN = ("none", "stock")
"""Those that never switch, and are not ours."""
FIXED_ARMS = (*WITHOUT_PLUGIN, "off", "always")
"""Those that never switch."""
NEVER_OFF = "stock"
"""The recovery arm that the others are compared with."""
