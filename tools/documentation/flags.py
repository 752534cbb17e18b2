"""Writes docs/flags.md from the parsers: ``python -m tools.documentation.flags``.

A flag, a command or a variable that is new in the code is new in the page; a test compares the two.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from sglang_specv2 import flags
from sglang_specv2.cli.main import build_parser
from sglang_specv2.options import OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "flags.md"

INTRODUCTION = """\
# Flags

<!-- Written by `make docs` from the parsers. Change the help texts there, not this page. -->

## For a server

Of `sglang serve`, `python -m sglang.launch_server` and `sglang-specv2 serve`, beside SGLang's own.
Each is a keyword of `sglang.Engine(...)` too, with underscores (`speculative_dynamic="always"`),
and a variable. A flag or keyword wins over the variable; an empty variable counts as not given.
What they mean together, and the errors: [Operating](operating.md#settings).
"""

VARIABLES = """\

Variables without a flag:

| variable | meaning |
|---|---|
| `SGLANG_SPECV2` | 1, the default; 0 leaves SGLang untouched |
| `SGLANG_SPECV2_CPU` | 1 installs the [CPU engine](limits.md#the-cpu-engine), 0 forbids it |
"""


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join([INTRODUCTION, *_server_flags(), VARIABLES, *_commands()]).rstrip() + "\n"


def _server_flags() -> Iterator[str]:
    yield "| flag | variable | meaning |\n|---|---|---|"
    by_flag = {option.flag: option for option in OPTIONS}
    for action in flags.actions():
        option = by_flag[action.option_strings[0]]
        yield f"| {usage(action)} | `{option.variable}` | {meaning(action)} |"
    for option in OPTIONS:
        if option.flag is None:
            yield f"| | `{option.variable}` | {_cell(option.help)} |"


def _commands() -> Iterator[str]:
    (commands,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    for choice in commands._choices_actions:
        parser = commands.choices[choice.dest]
        yield f"\n## sglang-specv2 {choice.dest}\n\n{_sentence(choice.help)}\n"
        own = [a for a in parser._actions if not isinstance(a, argparse._HelpAction)]
        if own:
            yield "| flag | meaning |\n|---|---|"
            yield from (f"| {usage(action)} | {meaning(action)} |" for action in own)


def usage(action: argparse.Action) -> str:
    """A flag as it is given, with a name for its value."""
    if action.metavar is not None:
        values = [action.metavar] if isinstance(action.metavar, str) else [*action.metavar]
    elif action.choices is not None:
        values = ["{" + ",".join(map(str, action.choices)) + "}"]
    else:
        values = [] if action.nargs == 0 else [action.dest.upper()]
    return "`" + " ".join([", ".join(action.option_strings), *values]).strip() + "`"


def meaning(action: argparse.Action) -> str:
    """A flag's help text, with its default where the text asks for it."""
    return _cell((action.help or "") % vars(action))


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _sentence(text: str | None) -> str:
    text = _cell(text)
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
