"""Prometheus metrics of dynamic speculation, beside SGLang's own.

Names, labels and the multi-process mode follow SGLang's: ``sglang:spec_dynamic_…`` with the labels
of its scheduler. Counters end in ``_total`` when scraped; :data:`NAMES` is all of them as scraped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PREFIX = "sglang:spec_dynamic_"

_COUNTERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "steps": ("Decode steps.", ("mode", "draft_steps")),
    "tokens": ("Tokens computed, those past a request's end included.", ("mode", "draft_steps")),
    "seconds": ("Seconds from one decode step to the next.", ("mode", "draft_steps")),
    "switches": ("Switches of mode.", ("to", "reason")),
    "verifies": ("Requests verified.", ()),
    "drafted_tokens": ("Tokens drafted for verifies.", ()),
    "accepted_drafts": ("Drafts that verifies accepted.", ()),
    "resumes": ("Speculative steps that first needed a draft forward.", ()),
    "nan_drafts": (
        "Requests verified whose draft had come out NaN, in one speculative step of 8.",
        (),
    ),
    "eager_steps": ("Decode steps that no captured graph fitted.", ("mode",)),
    "probes": ("Probes of policy auto.", ()),
    "probe_cost_seconds": ("What they cost, as estimated.", ()),
}
_GAUGES: dict[str, str] = {
    "speculating": "1 while decode steps speculate, else 0.",
    "draft_steps": "Draft steps of the last decode step; 0 is a plain one.",
    "accept_length": "Tokens per verify, estimated from those seen lately.",
    "accept_rate": "Share of drafted tokens accepted, estimated likewise.",
    "estimated_speed_up": "Of speculation over plain steps for the present batch, policy auto.",
    "disable_batch_threshold": "Batch size above which steps are plain, policy threshold.",
    "enable_batch_threshold": "Batch size at which they speculate again, policy threshold.",
    "switch_margin": "Estimated gain that a switch needs, policy auto.",
}

NAMES = tuple([f"{PREFIX}{name}_total" for name in _COUNTERS] + [PREFIX + name for name in _GAUGES])

COUNTER_LABELS = {name: own for name, (_, own) in _COUNTERS.items()}
"""Labels of the counters, without the prefix, beside SGLang's."""


class DynamicMetrics:
    """The metrics of one scheduler.

    Args:
        labels: SGLang's labels of this scheduler, with their values.
        registry: where to register; prometheus_client's own by default.
    """

    def __init__(self, labels: Mapping[str, Any], registry: Any = None) -> None:
        from prometheus_client import REGISTRY, Counter, Gauge

        registry = REGISTRY if registry is None else registry
        self._labels = dict(labels)
        self._counters = {
            name: Counter(PREFIX + name, text, [*labels, *own], registry=registry)
            for name, (text, own) in _COUNTERS.items()
        }
        self._gauges = {
            name: Gauge(
                PREFIX + name, text, list(labels), multiprocess_mode="mostrecent", registry=registry
            )
            for name, text in _GAUGES.items()
        }
        self._children: dict[tuple[str, tuple[Any, ...]], Any] = {}

    def add(self, name: str, amount: float = 1, *own_labels: Any) -> None:
        """Add to a counter; ``own_labels`` are the values of its labels, in order."""
        key = name, own_labels
        child = self._children.get(key)
        if child is None:
            names: Iterable[str] = _COUNTERS[name][1]
            values = dict(zip(names, own_labels, strict=True))
            child = self._counters[name].labels(**self._labels, **values)
            self._children[key] = child
        child.inc(amount)

    def set(self, name: str, value: float) -> None:
        """Set a gauge."""
        key = name, ()
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._gauges[name].labels(**self._labels)
        child.set(value)
