"""Runs ``sglang.Engine`` once, for a test that reads what it writes.

    python engine_child.py REQUEST ANSWER

REQUEST is a JSON file with the keyword arguments of the Engine (``engine``) and of its ``generate``
(``generate``); ANSWER takes the list that ``generate`` returned.
"""

import json
import sys
from pathlib import Path

import sglang


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text())
    engine = sglang.Engine(**request["engine"])
    try:
        answers = engine.generate(**request["generate"])
    finally:
        engine.shutdown()
    Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
