"""The console command ``sglang-specv2``.

Processes that SGLang spawns import this module again. Importing the hook here means that they are
patched even where the package runs from a checkout, without its entry points.
"""

import argparse
import sys
from collections.abc import Sequence

import sglang_specv2.hook  # noqa: F401
from sglang_specv2.cli import bench, calibrate, doctor, plot, serve, status
from sglang_specv2.cli import set as set_command
from sglang_specv2.errors import SpecV2Error
from sglang_specv2.version import SUPPORTED_SGLANG, __version__


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command; what a command does not know is left for SGLang's parser."""
    parser = argparse.ArgumentParser(
        prog="sglang-specv2",
        description="Speculative decoding for SGLang that turns itself off and on.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action="version",
        version=f"sglang-specv2 {__version__}, for SGLang {SUPPORTED_SGLANG}",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in (serve, doctor, calibrate, status, set_command, bench, plot):
        command.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        The exit status: 0, 1 where ``doctor`` found something wrong, or 2 for a refusal, whose
        reason is on standard error.
    """
    args, sglang_argv = build_parser().parse_known_args(argv)
    try:
        status: int = args.run(args, sglang_argv)
    except SpecV2Error as error:
        print(f"sglang-specv2: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
