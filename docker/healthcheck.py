"""Exits 0 if the server of this container answers /health, on the port that it was started with.

    python3 healthcheck.py [COMMAND_LINE]

The server is process 1 of its container; outside of one, name another file of /proc.
"""

import sys
import urllib.request
from pathlib import Path

DEFAULT_PORT = "30000"
TIMEOUT_S = 24


def port(arguments: list[str]) -> str:
    """The last ``--port`` of a command line, given as ``--port N`` or ``--port=N``."""
    found = DEFAULT_PORT
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == "--port":
            found = following
        elif argument.startswith("--port="):
            found = argument.removeprefix("--port=")
    return found


def main(command_line: str = "/proc/1/cmdline") -> int:
    arguments = Path(command_line).read_text().split("\0")
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port(arguments)}/health", timeout=TIMEOUT_S)
    except OSError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
