"""``sglang-specv2 plot``: draws the figures of results again, one or several over each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sglang_specv2.benchmark.results import Results
from sglang_specv2.benchmark.tables import Comparison
from sglang_specv2.errors import ConfigError


def add_parser(commands: Any) -> None:
    """Adds ``plot``."""
    parser = commands.add_parser(
        "plot",
        help="draw the figures of one or several results of bench",
        description="Of one result folder: its figures and its report, again. Of several: their "
        "curves over each other, in --out.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "results", nargs="+", type=Path, metavar="RESULT", help="a result folder of bench"
    )
    parser.add_argument("--out", type=Path, help="folder for the figures (default: RESULT)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, rest: list[str]) -> int:
    """Draws.

    Raises:
        ConfigError: several results and no --out, an unknown option, or no matplotlib.
        ResultError: a folder is no result.
    """
    if rest:
        raise ConfigError(f"plot does not know {rest[0]}")
    results = [Results.existing(folder) for folder in args.results]
    try:
        from sglang_specv2.benchmark import figures, session
    except ImportError as error:
        raise ConfigError(f'{error}; pip install "sglang-specv2[bench]" brings it') from error
    if args.out is None:
        if len(results) > 1:
            raise ConfigError("several results: expected --out, the folder for their figures")
        session.write_report(results[0])
        print(results[0].folder / "report.md")
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    for name, content in figures.draw_all([Comparison(result) for result in results]).items():
        Results(args.out).write(name, content)
        print(args.out / name)
    return 0
