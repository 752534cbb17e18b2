"""Result folders made from numbers, for tests of what is done with them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sglang_specv2.benchmark.results import ROUNDS, Results
from sglang_specv2.benchmark.settings import Settings
from sglang_specv2.benchmark.tables import Comparison


def provenance(settings: Settings, **changed: Any) -> dict[str, Any]:
    run = {
        "began": "2026-01-01T00:00:00+00:00",
        "command": "sglang-specv2 bench",
        "note": None,
        "environment": {},
        "gpu": None,
        "cpu": {"cores": 2, "machine": "x86_64"},
        "system": "Linux",
        "client": "own",
        "client_reason": "asked for",
        "settings": settings.as_dict(),
    }
    return {
        "pair": "a pair",
        "recovery_pair": "a trained pair",
        "dummy_weights": False,
        "gpu_name": None,
        "versions": {"python": "3.11"},
        "commit": "abc",
        "settings": settings.as_dict(),
        "runs": [run],
        **changed,
    }


def rounds(rates: dict[str, dict[int, list[float]]]) -> Iterable[dict[str, Any]]:
    """Lines of rounds from output rates by arm and level."""
    for arm, levels in rates.items():
        for level, values in levels.items():
            for number, rate in enumerate(values):
                yield {
                    "arm": arm,
                    "load": "closed",
                    "level": level,
                    "round": number,
                    "output_tokens_s": rate,
                }


def make(
    folder: Path,
    settings: Settings,
    rates: dict[str, dict[int, list[float]]],
    lines: dict[str, list[dict[str, Any]]] | None = None,
    **changed: Any,
) -> Comparison:
    results = Results(folder)
    results.open(provenance(settings, **changed))
    results.append(ROUNDS, rounds(rates))
    for name, added in (lines or {}).items():
        results.append(name, added)
    return Comparison(results)
