"""A report to read, and to paste into a bug: sections of lines that are in order or not."""

from dataclasses import dataclass, field
from enum import Enum


class State(str, Enum):
    """How a line stands."""

    OK = "ok"
    NOTE = "note"
    PROBLEM = "PROBLEM"


@dataclass
class Report:
    """Lines in the order in which they were found, under section titles."""

    lines: list[tuple[str, State, str]] = field(default_factory=list)

    def add(self, section: str, state: State, text: str) -> None:
        self.lines.append((section, state, text))

    @property
    def problems(self) -> int:
        """How many lines say that something is wrong."""
        return sum(state is State.PROBLEM for _, state, _ in self.lines)

    def __str__(self) -> str:
        printed: list[str] = []
        section = None
        for name, state, text in self.lines:
            if name != section:
                printed += ["", name] if printed else [name]
                section = name
            printed.append(f"  {state.value:<8} " + text.replace("\n", "\n" + " " * 11))
        n = self.problems
        verdict = "Everything is in order." if n == 0 else f"{n} problem{'s' if n > 1 else ''}."
        return "\n".join([*printed, "", verdict])
