"""Serves the bundled pair on the CPU engine, drives load 1 → 12 → 1 over HTTP, shows each second.

It ends by itself with status 0, or 1 with the reason when something went wrong, and leaves no
process behind, also on Ctrl-C.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from sglang_specv2.demo.load import RISE_AND_FALL, Load, Phase
from sglang_specv2.demo.prompts import PROMPTS, SHOWN
from sglang_specv2.demo.server import DemoError, DemoServer, Snapshot

THRESHOLD = 6
START_TIMEOUT_S = 150
PHASE_TIMEOUT_S = 25

HEADER = "seconds  clients  batch  mode         accept length   tokens  switches"


def main() -> int:
    """Runs the demo and returns its exit status."""
    # Also SIGINT: a shell that starts a job in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    with tempfile.TemporaryDirectory(prefix="sglang-specv2-demo-") as folder:
        server = None
        try:
            server = DemoServer(THRESHOLD, Path(folder) / "server.log")
            run(server)
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


def run(server: DemoServer) -> None:
    """Prints the whole demo.

    Raises:
        DemoError: the server failed, or did not switch both ways.
    """
    say(
        "Starting SGLang on the CPU engine with the bundled pair: a byte-level Llama and its "
        f"EAGLE-3 draft.\nIt speculates while at most {THRESHOLD} requests are decoded at once."
    )
    started = time.monotonic()
    server.wait_until_ready(START_TIMEOUT_S)
    say(
        f"Ready after {time.monotonic() - started:.0f} s at {server.url}. Clients now ask one "
        "question after the other, 1, then 12, then 1 of them.\n"
        "Accept length: tokens per verify in that second, of 3 at most. A plain step verifies "
        f"nothing.\n\n{HEADER}"
    )
    load = Load(server.answer, PROMPTS)
    began, last = time.monotonic(), server.snapshot()
    for phase in RISE_AND_FALL:
        load.resize(phase.clients)
        last = watch(server, load, phase, began, last)
    load.resize(0)
    show_answer(load)
    if last.switches < 2:
        raise DemoError(f"expected at least 2 switches of speculation, saw {last.switches}")
    say(
        f"\n{last.switches} switches, {last.tokens} tokens. Speeds on a CPU mean nothing: the "
        "point of a plain step is its cost on a GPU.\nMeasured there: docs/measurements.md."
    )


def watch(server: DemoServer, load: Load, phase: Phase, began: float, last: Snapshot) -> Snapshot:
    """Prints a line a second until the phase is over; returns the last state seen.

    Raises:
        DemoError: the server failed, or does not get into the phase's mode.
    """
    start = time.monotonic()
    while True:
        time.sleep(1)
        now = server.snapshot()
        if load.error is not None:
            raise load.error
        say(line(time.monotonic() - began, phase.clients, now, now.accept_length_since(last)))
        last = now
        elapsed = time.monotonic() - start
        if elapsed >= phase.seconds and phase.mode in (None, now.mode):
            return now
        if elapsed > PHASE_TIMEOUT_S:
            raise DemoError(
                f"expected mode {phase.mode} with {phase.clients} clients, still {now.mode} after "
                f"{elapsed:.0f} s"
            )


def line(seconds: float, clients: int, state: Snapshot, accept_length: float | None) -> str:
    """One row under :data:`HEADER`, with the batch drawn as a bar up to and past the threshold."""
    within = "■" * min(state.batch_size, THRESHOLD)
    past = "□" * max(state.batch_size - THRESHOLD, 0)
    accepted = "–" if accept_length is None else f"{accept_length:.2f}"
    return (
        f"{seconds:7.0f}  {clients:7}  {state.batch_size:5}  {state.mode:<11}  {accepted:>13}  "
        f"{state.tokens:7}  {state.switches:8}   {within}{past}"
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
