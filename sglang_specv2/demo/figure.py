"""The demo's figure: batch size, accept length and tokens/s over time, shaded by mode."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from sglang_specv2.demo.sample import NOT_YET, Sample

SHADES = {"speculative": "#dcfce7", "plain": "#ffedd5", NOT_YET: "#ffffff"}


def save(samples: Sequence[Sample], threshold: int, path: Path) -> str:
    """Draws ``samples`` into ``path``; returns a sentence that says where, or why not."""
    if importlib.util.find_spec("matplotlib") is None:
        return "No figure: matplotlib is not installed; pip install 'sglang-specv2[plots]'."
    import matplotlib.figure

    drawn = matplotlib.figure.Figure(figsize=(8, 6), layout="constrained")
    requests, accept, rate = drawn.subplots(3, sharex=True)
    seconds = [sample.seconds for sample in samples]
    requests.step(seconds, [sample.state.batch_size for sample in samples], where="pre")
    requests.axhline(threshold, color="gray", linestyle="--", linewidth=1, label="threshold")
    requests.set_ylabel("requests decoded")
    requests.set_ylim(0)
    requests.legend(frameon=False)
    accepted = [float("nan") if s.accept_length is None else s.accept_length for s in samples]
    accept.plot(seconds, accepted, marker=".")
    accept.set_ylabel("accept length")
    accept.set_ylim(1, 3)
    rate.plot(seconds, [sample.tokens_s for sample in samples])
    rate.set_ylabel("tokens/s on this CPU")
    rate.set_ylim(0)
    rate.set_xlabel("seconds\nNo claim: a plain step on a CPU is not what it is on a GPU.")
    for axes in (requests, accept, rate):
        for mode, begin, end in spans(samples):
            axes.axvspan(begin, end, color=SHADES[mode], linewidth=0, zorder=0)
        axes.margins(x=0)
    requests.set_title("SGLang on the CPU engine, bundled pair. Green: speculative, orange: plain.")
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path)
    return f"Figure: {path}."


def spans(samples: Sequence[Sample]) -> Iterator[tuple[str, float, float]]:
    """Mode, begin and end in seconds of every run of samples in one mode."""
    begin = 0.0
    for mode, run in groupby(samples, key=lambda sample: sample.state.mode):
        end = list(run)[-1].seconds
        yield mode, begin, end
        begin = end
