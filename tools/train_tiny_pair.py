#!/usr/bin/env python3
"""Train the tiny pair: a byte-level Llama target and its EAGLE-3 draft.

    python3 tools/train_tiny_pair.py --out DIR --minutes 5

writes DIR/tiny-target and DIR/tiny-draft (config, weights, tokenizer, model card, training log) and
prints a table of held-out figures. Five minutes are meant for one H200; a CPU does for a trial
(`--trial`). A run that is killed leaves the last checkpoints. Needs PyTorch and safetensors.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import shutil
import sys
import sysconfig
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tiny_pair import checkpoint, corpus, report, training, unloop
from tiny_pair.model import Draft, Shape, Target

# Shares of the wall time; "measure" is for the figures at the end.
SHARES = {"target": 0.5, "unloop": 0.15, "draft": 0.23, "measure": 0.12}
STAGES = ("target", "unloop", "draft")
TRIAL: dict[str, dict[str, Any]] = {
    "shape": {"hidden_size": 64, "intermediate_size": 192, "num_heads": 2, "max_positions": 1024},
    "batching": {
        "tokens": 4096,
        "target_length": 256,
        "long_length": 512,
        "draft_rows": 256,
        "draft_long_rows": (512,),
        "draft_tokens": 2048,
        "own_text_rows": 8,
        "own_text_prompt": 64,
        "own_text_tokens": 256,
    },
    "unloop": {
        "rows": 8,
        "prompt": 64,
        "tokens": 192,
        "updates": 4,
        "own_rows_a_step": 4,
        "corpus_rows_a_step": 8,
        "corpus_length": 256,
    },
    "measure": {"code_rows": 4, "long_rows": 2, "long_tokens": 600},
}
MEASURE: dict[str, Any] = {"code_rows": 64, "long_rows": 16, "long_tokens": 4096}


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for both model folders")
    parser.add_argument("--minutes", type=float, default=5.0, help="wall time for everything")
    parser.add_argument(
        "--steps",
        type=int,
        nargs=3,
        metavar=tuple(stage.upper() for stage in STAGES),
        help="train for so many steps instead, to repeat a run",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--text",
        type=Path,
        default=Path(sysconfig.get_path("stdlib")),
        help="folder of Python sources to learn from (default: this Python's standard library)",
    )
    parser.add_argument("--target-lr", type=float, default=2e-3)
    parser.add_argument("--unloop-lr", type=float, default=1e-4)
    parser.add_argument("--draft-lr", type=float, default=2e-3)
    parser.add_argument(
        "--skip",
        nargs="+",
        default=[],
        choices=("target", "unloop"),
        help="stages to leave out; without the first, the target in --out is taken and trained on",
    )
    parser.add_argument("--no-compile", action="store_true", help="never use torch.compile")
    parser.add_argument("--trial", action="store_true", help="a far smaller model, for a CPU")
    return parser.parse_args(argv)


def can_compile(device: str) -> bool:
    """Whether torch.compile has what it needs: a GPU, Triton and a C compiler."""
    compiler = any(shutil.which(name) for name in ("cc", "gcc", "clang"))
    return device.startswith("cuda") and compiler and importlib.util.find_spec("triton") is not None


class Log:
    """JSON lines, printed and kept in a file that a run on an earlier target goes on with."""

    def __init__(self, path: Path, *, append: bool) -> None:
        self.path = path
        if not append:
            path.unlink(missing_ok=True)

    def __call__(self, record: dict[str, object]) -> None:
        line = json.dumps(record)
        print(line, flush=True)
        with self.path.open("a") as file:
            file.write(line + "\n")

    def copy_steps(self, model: str, path: Path) -> None:
        """Write the lines of one model's training steps to `path`."""
        lines = self.path.read_text().splitlines(keepends=True)
        steps = ((json.loads(line), line) for line in lines)
        kept = [line for entry, line in steps if entry.get("model") == model and "step" in entry]
        path.write_text("".join(kept))


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(argv)
    started = time.monotonic()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    compiled = not args.no_compile and can_compile(args.device)
    if compiled:
        # A machine where compilation fails trains slower instead of not at all; torch says so.
        torch._dynamo.config.suppress_errors = True

    shape, batching, unloop_sizes = Shape(), training.Batching(), unloop.Sizes()
    if args.trial:
        shape = replace(shape, **TRIAL["shape"])
        batching = replace(batching, **TRIAL["batching"])
        unloop_sizes = replace(unloop_sizes, **TRIAL["unloop"])
    folders = {name: args.out / f"tiny-{name}" for name in ("target", "draft")}
    args.out.mkdir(parents=True, exist_ok=True)
    log = Log(args.out / "training_log.jsonl", append="target" in args.skip)

    text = corpus.build(args.text, args.seed)
    log({"text": str(args.text), **text.summary, "compile": compiled, **report.versions()})
    run = training.Run(
        device=torch.device(args.device),
        generator=torch.Generator().manual_seed(args.seed),
        log=log,
        batching=batching,
        compile=compiled,
    )
    steps = dict(zip(STAGES, args.steps or [None] * len(STAGES), strict=True))
    share_s = (args.minutes * 60 - (time.monotonic() - started)) / sum(
        share for stage, share in SHARES.items() if stage not in args.skip
    )

    def budget(stage: str) -> training.Budget:
        return training.Budget(share_s * SHARES[stage], steps[stage])

    def save_target(module: Target) -> None:
        checkpoint.save_target(module, folders["target"])

    def save_draft(module: Draft) -> None:
        checkpoint.save_draft(module, folders["draft"])

    # An untrained draft first: whenever the run is killed, both folders can be served.
    save_draft(Draft(shape))
    if "target" in args.skip:
        target = checkpoint.load_target(folders["target"], shape, run.device)
    else:
        save_target(Target(shape))
        target, steps["target"] = training.train_target(
            shape, text, budget("target"), run, args.target_lr, save_target
        )
    if "unloop" not in args.skip:
        steps["unloop"] = unloop.unlearn_loops(
            target, text, budget("unloop"), run, args.unloop_lr, unloop_sizes, save_target
        )
    checkpoint.round_to_saved(target)
    draft, steps["draft"] = training.train_draft(
        target, text, budget("draft"), run, args.draft_lr, save_draft
    )
    checkpoint.round_to_saved(draft)

    measured = report.measure(target, draft, text, **(TRIAL["measure"] if args.trial else MEASURE))
    facts = {
        "seed": args.seed,
        "steps (target, unloop, draft)": ", ".join(
            "earlier run" if stage in args.skip else str(steps[stage]) for stage in STAGES
        ),
        "peak learning rates": f"{args.target_lr}, {args.unloop_lr}, {args.draft_lr}",
        "parameters, target": sum(p.numel() for p in target.parameters()),
        "parameters, draft": sum(p.numel() for p in draft.parameters()),
        "training text": f"{text.summary['files']} files, {text.summary['bytes']} bytes",
        "held-out text": f"{text.summary['held_out_files']} files",
        "seconds in all": round(time.monotonic() - started),
    }
    log({"measured": dict(measured.rows()), **facts})
    report.write_cards(folders["target"], folders["draft"], measured, facts)
    for name, folder in folders.items():
        log.copy_steps(name, folder / "training_log.jsonl")

    print()
    for what, value in [*measured.rows(), *facts.items()]:
        print(f"{what:58} {value}")
    for prompt, answer in measured.samples:
        print(f"\n--- prompt\n{prompt}\n--- answer\n{answer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
