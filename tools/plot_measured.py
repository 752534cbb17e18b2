#!/usr/bin/env python3
"""Draws the figure of the README from measured numbers; needs the standard library only.

    python tools/plot_measured.py docs/measured/off-and-on.json docs/images/off-and-on.svg

The data file holds ``title``, ``subtitle``, ``concurrency`` and ``arms``, each with its ``name``
and ``output_tokens_s``, one number per concurrency. Where the first two arms cross is marked.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 440
LEFT, RIGHT, TOP, BOTTOM = 80, 170, 76, 60
TICK_TOKENS_S = 2000

STYLES = (
    {"stroke": "#6b7280", "stroke-width": "6", "stroke-opacity": "0.45"},
    {"stroke": "#c2410c", "stroke-width": "2.5"},
    {"stroke": "#1d4ed8", "stroke-width": "2", "stroke-dasharray": "7 4"},
)
"""One for each arm, in order; the first is wide, for others to lie on it."""


class DataError(ValueError):
    """The data file is not what is expected; says what is wrong."""


@dataclass(frozen=True)
class Scale:
    """Where a measured point lies in the picture: concurrency on a base-2 log axis, rate linear."""

    concurrency: Sequence[int]
    largest_rate: float

    def x(self, concurrency: float) -> float:
        low, high = math.log2(self.concurrency[0]), math.log2(self.concurrency[-1])
        share = (math.log2(concurrency) - low) / (high - low)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, rate: float) -> float:
        return HEIGHT - BOTTOM - rate / self.largest_rate * (HEIGHT - TOP - BOTTOM)


def crossing(
    concurrency: Sequence[int], a: Sequence[float], b: Sequence[float]
) -> tuple[float, float] | None:
    """Concurrency and rate where two curves first cross, drawn as straight lines over log2.

    None where they do not.
    """
    for i in range(len(concurrency) - 1):
        before, after = a[i] - b[i], a[i + 1] - b[i + 1]
        if before * after < 0:
            share = before / (before - after)
            low, high = math.log2(concurrency[i]), math.log2(concurrency[i + 1])
            return 2 ** (low + share * (high - low)), a[i] + share * (a[i + 1] - a[i])
    return None


def draw(data: dict[str, Any]) -> str:
    """The picture as SVG.

    Raises:
        DataError: numbers are missing or too many.
    """
    _check(data)
    concurrency, arms = data["concurrency"], data["arms"]
    largest = max(max(arm["output_tokens_s"]) for arm in arms)
    scale = Scale(concurrency, math.ceil(largest / TICK_TOKENS_S) * TICK_TOKENS_S)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="13" fill="#111827" role="img">',
        f"<title>{escape(data['title'])}. {escape(data['subtitle'])}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 30, data["title"], weight="bold", size=16),
        _text(LEFT, 52, data["subtitle"], fill="#4b5563"),
        *_axes(scale),
        *_crossing_mark(scale, concurrency, arms),
    ]
    for arm, style in zip(arms, STYLES, strict=False):
        parts += _curve(scale, concurrency, arm["output_tokens_s"], style)
    parts += _names(scale, arms)
    return "\n".join([*parts, "</svg>", ""])


def _check(data: dict[str, Any]) -> None:
    missing = {"title", "subtitle", "concurrency", "arms"} - data.keys()
    if missing:
        raise DataError(f"expected title, subtitle, concurrency and arms; {missing} missing")
    if not 1 <= len(data["arms"]) <= len(STYLES):
        raise DataError(f"expected 1 to {len(STYLES)} arms, got {len(data['arms'])}")
    for arm in data["arms"]:
        if len(arm["output_tokens_s"]) != len(data["concurrency"]):
            raise DataError(
                f"{arm['name']}: expected {len(data['concurrency'])} rates, one per concurrency, "
                f"got {len(arm['output_tokens_s'])}"
            )


def _axes(scale: Scale) -> Iterable[str]:
    right = WIDTH - RIGHT
    for rate in range(0, int(scale.largest_rate) + 1, TICK_TOKENS_S):
        y = scale.y(rate)
        yield f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#e5e7eb"/>'
        yield _text(LEFT - 10, y + 4, f"{rate:,}", anchor="end", fill="#4b5563")
    for level in scale.concurrency:
        x = scale.x(level)
        yield _text(x, HEIGHT - BOTTOM + 20, str(level), anchor="middle", fill="#4b5563")
    label_y = HEIGHT - BOTTOM + 44
    yield _text((LEFT + right) / 2, label_y, "requests at once", anchor="middle")
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield (
        f'<text transform="translate(20 {middle:.1f}) rotate(-90)" text-anchor="middle">'
        "output tokens/s</text>"
    )


def _crossing_mark(scale: Scale, concurrency: Sequence[int], arms: Sequence[Any]) -> Iterable[str]:
    if len(arms) < 2:
        return
    found = crossing(concurrency, arms[0]["output_tokens_s"], arms[1]["output_tokens_s"])
    if found is None:
        return
    x, bottom = scale.x(found[0]), HEIGHT - BOTTOM
    yield f'<path d="M{x:.1f} {TOP}V{bottom}" stroke="#111827" stroke-dasharray="2 4"/>'
    yield _text(x - 8, TOP + 14, "speculation pays", anchor="end")
    yield _text(x + 8, TOP + 14, "speculation costs")
    yield _text(x + 8, bottom - 10, f"cross at about {found[0]:.0f}")


def _curve(
    scale: Scale, concurrency: Sequence[int], rates: Sequence[float], style: dict[str, str]
) -> Iterable[str]:
    points = [(scale.x(c), scale.y(r)) for c, r in zip(concurrency, rates, strict=True)]
    attributes = " ".join(f'{name}="{value}"' for name, value in style.items())
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    yield f'<polyline points="{joined}" fill="none" {attributes}/>'
    for x, y in points:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{style["stroke"]}"/>'


def _names(scale: Scale, arms: Sequence[Any]) -> Iterable[str]:
    """Names at the curves' right ends, moved apart where those meet."""
    last = float("-inf")
    ends = sorted(
        (scale.y(arm["output_tokens_s"][-1]), arm["name"], style)
        for arm, style in zip(arms, STYLES, strict=False)
    )
    for y, name, style in ends:
        last = max(y + 4, last + 18)
        yield _text(WIDTH - RIGHT + 12, last, name, fill=style["stroke"])


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    fill: str = "#111827",
    weight: str = "normal",
    size: int = 13,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" '
        f'font-weight="{weight}" font-size="{size}">{escape(text)}</text>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Draws measured rates as an SVG.")
    parser.add_argument("data", type=Path)
    parser.add_argument("svg", type=Path)
    options = parser.parse_args()
    options.svg.write_text(draw(json.loads(options.data.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
