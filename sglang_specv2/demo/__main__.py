"""Serves the bundled pair on the CPU engine, drives load 1 → 12 → 1 over HTTP, shows what happens.

It ends by itself with status 0, or 1 with the reason when something went wrong, and leaves no
process behind, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from sglang_specv2.demo import figure
from sglang_specv2.demo.load import RISE_AND_FALL, Load, Phase
from sglang_specv2.demo.prompts import PROMPTS, SHOWN
from sglang_specv2.demo.sample import Sample, Sampler
from sglang_specv2.demo.server import DemoError, DemoServer
from sglang_specv2.demo.view import View, choose

THRESHOLD = 6
START_TIMEOUT_S = 150
PHASE_TIMEOUT_S = 25


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo and returns its exit status."""
    options = _parser().parse_args(arguments)
    # Also SIGINT: a shell that starts a job in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="sglang-specv2-demo-") as folder:
        server = None
        try:
            server = DemoServer(THRESHOLD, Path(folder) / "server.log")
            run(server, choose(THRESHOLD, plain=options.plain), options.figure)
        except KeyboardInterrupt:
            print("\nStopped.", file=sys.stderr)
            return 130
        except DemoError as error:
            print(f"\nThe demo failed: {error}", file=sys.stderr)
            return 1
        finally:
            if server is not None:
                server.stop()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sglang_specv2.demo", description=__doc__)
    parser.add_argument(
        "--figure",
        type=Path,
        default=Path("sglang-specv2-demo.svg"),
        help="where the figure goes: .svg, .png or .pdf (default: %(default)s)",
    )
    parser.add_argument(
        "--plain", action="store_true", help="lines instead of a live view, as without a terminal"
    )
    return parser


def run(server: DemoServer, view: View, figure_path: Path) -> None:
    """Shows the whole demo.

    Raises:
        DemoError: the server failed, or did not switch both ways.
    """
    say(
        "Starting SGLang on the CPU engine with the bundled pair: a byte-level Llama and its "
        f"EAGLE-3 draft.\nIt speculates while at most {THRESHOLD} requests are decoded at once."
    )
    started = time.monotonic()
    with view.waiting("SGLang starts and loads the models"):
        server.wait_until_ready(START_TIMEOUT_S)
    say(
        f"Ready after {time.monotonic() - started:.0f} s at {server.url}. Clients now ask one "
        "question after the other, 1, then 12, then 1 of them.\n"
    )
    load = Load(server.answer, PROMPTS)
    samples: list[Sample] = []
    with view:
        sampler = Sampler(server.snapshot)
        for phase in RISE_AND_FALL:
            load.resize(phase.clients)
            samples += watch(sampler, load, phase, view)
        load.resize(0)
    last = samples[-1].state
    if last.switches < 2:
        raise DemoError(f"expected at least 2 switches of speculation, saw {last.switches}")
    show_answer(load)
    drawn = figure.save(samples, THRESHOLD, figure_path)
    say(f"\n{last.switches} switches, {last.tokens} tokens. {drawn}")
    say(
        "Speeds on a CPU mean nothing: the point of a plain step is its cost on a GPU.\n"
        "Measured there: docs/measurements.md."
    )


def watch(sampler: Sampler, load: Load, phase: Phase, view: View) -> list[Sample]:
    """Shows a sample at every interval of the view until the phase is over; returns them.

    Raises:
        DemoError: the server failed, or does not get into the phase's mode.
    """
    start, samples = time.monotonic(), []
    while True:
        time.sleep(view.interval_s)
        sample = sampler.take(phase.clients)
        if load.error is not None:
            raise load.error
        view.show(sample, load.writing)
        samples.append(sample)
        elapsed = time.monotonic() - start
        if elapsed >= phase.seconds and phase.mode in (None, sample.state.mode):
            return samples
        if elapsed > PHASE_TIMEOUT_S:
            raise DemoError(
                f"expected mode {phase.mode} with {phase.clients} clients, still "
                f"{sample.state.mode} after {elapsed:.0f} s"
            )


def show_answer(load: Load) -> None:
    """Prints a question and what was answered.

    Raises:
        DemoError: the answer is missing or empty.
    """
    answer = load.answers.get(SHOWN, "").strip()
    if not answer:
        raise DemoError(f"expected an answer to {SHOWN!r}, got none")
    say("\nOne of the answers, greedy, from a model of 3 million parameters:")
    say(f"\n> {SHOWN}\n\n{answer}")


def say(text: str) -> None:
    print(text, flush=True)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
