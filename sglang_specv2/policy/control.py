"""The policy in force, and how a running server is given another one.

Values are numbers, because SGLang's ``/set_internal_state`` carries nothing else; policies have
codes (:data:`CODES`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sglang_specv2.config import SpecV2Config, enable_threshold_of
from sglang_specv2.errors import ConfigError
from sglang_specv2.policy import Acceptance, AutoPolicy, CostModel, LiveCost, Policy, build
from sglang_specv2.policy.threshold import ThresholdPolicy

CODES = {"never": 0, "always": 1, "threshold": 2, "auto": 3}
"""Policy → the number that stands for it."""

PREFIX = "speculative_"
SETTABLE = (
    "dynamic",
    "disable_batch_threshold",
    "enable_batch_threshold",
    "switch_min_dwell",
    "switch_margin",
)
"""Fields of :class:`SpecV2Config` that can change while serving; over HTTP with the prefix."""


_OWN = {
    "threshold": ("disable_batch_threshold", "enable_batch_threshold"),
    "auto": ("switch_margin",),
}
_MEANT_FOR = {policy: (*own, "switch_min_dwell") for policy, own in _OWN.items()}


class PolicyControl:
    """Holds the policy and replaces it.

    Args:
        config: what the server was started with.
        acceptance: accept lengths seen so far; kept across policies.
        choices: numbers of draft steps that have graphs, 0 among them.
        cost: step times, or None where nothing was measured. What is learned of them while serving
            is kept across policies.
        check: raises ConfigError where the server cannot serve a configuration.
    """

    def __init__(
        self,
        config: SpecV2Config,
        acceptance: Acceptance,
        choices: tuple[int, ...],
        cost: CostModel | None,
        check: Callable[[SpecV2Config], None],
    ) -> None:
        self.config = config
        self._check = check
        self.cost = None if cost is None else LiveCost(cost)
        self._acceptance = acceptance
        self._choices = choices
        self.policy: Policy = build(config, acceptance, choices, self.cost)
        self._kept: dict[str, Any] = {}
        """Thresholds and margin as they were last in force; another policy has none."""
        self._auto: AutoPolicy | None = None  # The last one that was in force.
        self._keep()

    def change(self, values: Mapping[str, Any]) -> None:
        """Put another policy in force, or leave everything as it is and raise; see
        :meth:`planned`."""
        self.config, policy = self.planned(values)
        # Which settings changed says nothing about what the batches and the machine were like.
        if isinstance(policy, AutoPolicy) and self._auto is not None:
            policy.continue_from(self._auto)
        elif isinstance(policy, ThresholdPolicy) and isinstance(self.policy, ThresholdPolicy):
            policy.continue_from(self.policy)
        self.policy = policy
        self._keep()

    def planned(self, values: Mapping[str, Any]) -> tuple[SpecV2Config, Policy]:
        """The settings and the policy that :meth:`change` would put in force.

        A threshold alone means policy ``threshold``, a margin alone ``auto``, as at start; what is
        not given stays as it was, also through a time with another policy. An enable threshold
        that followed from the disable threshold goes on following it.

        Args:
            values: numbers by the names in :data:`SETTABLE`, with the prefix.

        Raises:
            ConfigError: a name is unknown, or a value or combination is impossible.
        """
        given = {self._field(name): value for name, value in values.items()}
        old = self.config
        asked = _policy_of(given.pop("dynamic")) if "dynamic" in given else _implied(given)
        dynamic = asked or old.dynamic
        for name, value in given.items():
            if name not in _MEANT_FOR.get(dynamic, ()):
                meant_for = " or ".join(p for p, names in _MEANT_FOR.items() if name in names)
                raise ConfigError(
                    f"{PREFIX}{name} {value} contradicts policy {dynamic}: expected {meant_for}; "
                    "leave one of them out"
                )
        new: dict[str, Any] = {
            "dynamic": dynamic,
            "draft_sync": old.draft_sync,
            "switch_min_dwell": old.switch_min_dwell,
        }
        if dynamic == "threshold":
            new |= {name: self._kept.get(name) for name in _OWN["threshold"]}
        elif dynamic == "auto":
            new["switch_margin"] = self._kept.get("switch_margin", old.switch_margin)
            new["step_choices"] = old.step_choices
        config = SpecV2Config(**(new | given))
        self._check(config)
        return config, build(config, self._acceptance, self._choices, self.cost)

    def _keep(self) -> None:
        config = self.config
        self._kept |= {name: getattr(config, name) for name in _OWN.get(config.dynamic, ())}
        if config.disable_batch_threshold is not None and (
            config.enable_batch_threshold == enable_threshold_of(config.disable_batch_threshold)
        ):
            self._kept["enable_batch_threshold"] = None  # It follows, also the next one.
        if isinstance(self.policy, AutoPolicy):
            self._auto = self.policy

    def _field(self, name: str) -> str:
        field = name.removeprefix(PREFIX)
        if field not in SETTABLE or not name.startswith(PREFIX):
            known = ", ".join(PREFIX + field for field in SETTABLE)
            raise ConfigError(f"{name}: expected one of {known}")
        return field

    def as_dict(self) -> dict[str, Any]:
        """The settings that mean something to the policy in force."""
        names = ["dynamic", *_MEANT_FOR.get(self.config.dynamic, ())]
        return {name: getattr(self.config, name) for name in names}


def _implied(given: Mapping[str, Any]) -> str | None:
    if "disable_batch_threshold" in given or "enable_batch_threshold" in given:
        return "threshold"
    return "auto" if "switch_margin" in given else None


def _policy_of(code: Any) -> str:
    for policy, number in CODES.items():
        if code == number and not isinstance(code, bool):
            return policy
    listed = ", ".join(f"{number} ({policy})" for policy, number in CODES.items())
    raise ConfigError(f"{PREFIX}dynamic: expected one of {listed}, got {code!r}")
