"""What the workloads ask. Every word was written for this project."""

from __future__ import annotations

import random

AGENT = """\
You are the coding agent of a small team that runs a delivery service for libraries. You work in a \
clone of the team's repository. People describe a change, a fault or a question; you look at the \
files that they quote, decide what to do, and answer with code that can be put in place as it is.

How you work
1. Read the whole request and every quoted file before you write. If two of them contradict each \
other, the request wins over comments, and tests win over the request; say which one you followed.
2. Change as little as solves the problem. Do not rename, reorder or reformat what you do not need \
to touch. Keep the style of the file, its line length, its quotes and its import order.
3. Think of the unusual case first: the empty list, the missing key, the second call, the clock \
that goes backwards, the name with a space in it, two workers that do the same thing at once.
4. Never swallow an error. Either handle it so that the caller can go on, or let it through with \
enough words to act on: what was expected, what was found, what to do.
5. Say nothing about how you feel, and do not repeat the request. No headings, no lists of what \
you could have done instead.

Tools
You may ask for one of these by writing a single line of JSON and nothing else; the next message \
then holds its result.
{"tool": "read", "path": "...", "from": 1, "to": 200}      lines of a file
{"tool": "search", "pattern": "...", "in": "src/"}          lines that match a regular expression
{"tool": "run", "command": "make test TESTS=..."}           the end of a command's output
{"tool": "write", "path": "...", "text": "..."}             a whole file
A read of more than 400 lines is cut. A command may take a minute. Nothing reaches the network. A \
file that you write replaces the one that was there, so read it first.

The repository
src/routes/    one module for each HTTP route, nothing but parsing, a call and an answer
src/domain/    plans, vans, shelves, loans: plain classes without any input or output
src/store/     tables in SQLite, one module for each; the only place that knows SQL
src/jobs/      what runs at night: reminders, reports, the tidy-up of old plans
web/           the page for drivers, in TypeScript without a framework
tests/         one file for each module, same name with test_ before it
Times are UTC and seconds since 1970, as integers. Money is cents. A shelf mark is a string such \
as "QA 76.73", and sorts by its parts, not as text. Public functions have type hints and one \
sentence that says what they return. Tests use plain assert and make their own data.

Answers
Put code in one fenced block for each file, with the path in a comment in its first line. Show the \
whole function that you changed, not the whole file. After the code, at most three sentences: what \
changed, and what you could not check. If nothing has to change, say so in one sentence and why.
"""
"""The long system prompt that every coding request shares."""

_FILES = (
    (
        "src/domain/shelf_mark.py",
        '''\
import re

PART = re.compile(r"(\\d+(?:\\.\\d+)?)|([A-Za-z]+)")


def sort_key(mark: str) -> tuple:
    """Parts of a shelf mark, numbers as numbers, so that marks sort as they stand on shelves."""
    parts = []
    for number, letters in PART.findall(mark):
        if number:
            parts.append((0, float(number)))
        else:
            parts.append((1, letters.upper()))
    return tuple(parts)


def neighbours(marks: list[str], mark: str) -> tuple[str | None, str | None]:
    """The marks just before and just after a mark that may itself be missing."""
    ordered = sorted(marks, key=sort_key)
    place = ordered.index(mark)
    before = ordered[place - 1] if place else None
    after = ordered[place + 1]
    return before, after
''',
    ),
    (
        "src/store/loans.py",
        '''\
import sqlite3
import time


def overdue(db: sqlite3.Connection, now: int | None = None) -> list[sqlite3.Row]:
    """Loans past their date, the oldest first."""
    now = now or int(time.time())
    return db.execute(
        "SELECT id, reader, item, due FROM loans WHERE returned IS NULL AND due < ? ORDER BY due",
        (now,),
    ).fetchall()


def renew(db: sqlite3.Connection, loan: int, days: int) -> int:
    """Moves the date of a loan and returns the new one."""
    due = db.execute("SELECT due FROM loans WHERE id = ?", (loan,)).fetchone()["due"]
    due += days * 86400
    db.execute("UPDATE loans SET due = ? WHERE id = ?", (due, loan))
    return due
''',
    ),
    (
        "src/jobs/reminders.py",
        '''\
from src.store import loans, readers


def send_all(db, mailer, now):
    """One mail for each reader with overdue loans; returns how many were sent."""
    sent = 0
    by_reader = {}
    for loan in loans.overdue(db, now):
        by_reader.setdefault(loan["reader"], []).append(loan)
    for reader, items in by_reader.items():
        person = readers.get(db, reader)
        text = "Please bring back:\\n" + "\\n".join(f"- {item['item']}" for item in items)
        try:
            mailer.send(person["mail"], "Overdue", text)
        except Exception:
            pass
        sent += 1
    return sent
''',
    ),
    (
        "web/plan.ts",
        """\
type Stop = { id: number; name: string; minutes: number; done: boolean };

export class Plan {
  private stops: Stop[] = [];

  constructor(private readonly load: (van: string) => Promise<Stop[]>) {}

  async refresh(van: string): Promise<void> {
    this.stops = await this.load(van);
  }

  get remaining(): number {
    return this.stops.filter((stop) => !stop.done).reduce((sum, stop) => sum + stop.minutes, 0);
  }

  next(): Stop {
    return this.stops.find((stop) => !stop.done)!;
  }

  finish(id: number): void {
    const stop = this.stops.find((one) => one.id == id);
    stop!.done = true;
  }
}
""",
    ),
    (
        "src/domain/van.py",
        '''\
from dataclasses import dataclass, field


@dataclass
class Crate:
    name: str
    kilograms: float


@dataclass
class Van:
    name: str
    limit: float
    crates: list[Crate] = field(default_factory=list)

    def weight(self) -> float:
        return sum(crate.kilograms for crate in self.crates)

    def pack(self, crates: list[Crate]) -> list[Crate]:
        """Takes what fits, heaviest first, and returns what is left."""
        left = []
        for crate in sorted(crates, key=lambda crate: crate.kilograms):
            if self.weight() + crate.kilograms < self.limit:
                self.crates.append(crate)
            else:
                left.append(crate)
        return left
''',
    ),
    (
        "src/routes/report.py",
        '''\
import csv
import io

from src.store import plans


def get(request, db):
    """All stops of a day as CSV, one row for each, in the order in which they were driven."""
    day = request.query["day"]
    rows = plans.stops_of(db, day)
    out = io.StringIO()
    writer = csv.writer(out)
    for row in rows:
        writer.writerow([row["van"], row["name"], row["arrived"] - row["planned"]])
    return 200, {"content-type": "text/csv"}, out.getvalue()
''',
    ),
)

_REQUESTS = (
    "The function fails when what it looks for is the last one, or is not there at all. Mend it.",
    "Write tests for this file. Cover the cases that nobody thinks of, and give each a name that "
    "says what has to hold.",
    "Something in here loses an error that somebody would have needed. Find it, and make it heard "
    "without ending the whole run.",
    "This is slow with fifty thousand rows. Make it fast without changing what callers see.",
    "Add type hints wherever they are missing, and make the loosest of them tighter.",
    "Explain in code comments why each step is needed, then shorten what can be shorter.",
)

_CHATS = (
    "I have to explain to a ten-year-old why the moon does not fall down. How would you put it?",
    "Give me a plan for a week of dinners for two people, without fish, that uses up a whole "
    "cabbage.",
    "My neighbour practises the trumpet every evening. Draft a friendly note that asks for two "
    "quiet evenings a week.",
    "What should I look at first when a bicycle's gears jump under load?",
    "Tell a short story that begins with a lost umbrella and ends on a ferry.",
    "Compare renting and buying a ladder for somebody who paints one room a year.",
    "I am to speak for three minutes at my sister's wedding. Ask me what you need, then write a "
    "first version with gaps to fill.",
    "Why do some countries drive on the left? Keep it under two hundred words.",
    "Make a list of questions for choosing a school for a shy child.",
    "Turn this into a polite refusal: no, I will not lend you the van again after last time.",
    "How do I keep basil alive on a north-facing window sill?",
    "Explain the difference between weather and climate with an example from sport.",
)

_EVENTS = (
    "van {van} left the depot {late} minutes late because {reason}",
    "crate {crate} was scanned twice at {place}, once by {who} and once by nobody",
    "{who} swapped the stops {place} and {other}, and the plan was not told",
    "the reader at {place} returned {count} items, {late} of them from another library",
    "{who} reports that the lift at {place} takes at most {count} kilograms",
    "van {van} met {reason} between {place} and {other} and waited {late} minutes",
)
_WORDS = {
    "reason": ("a flat tyre", "snow", "a closed bridge", "a missing key", "a street festival"),
    "place": ("Harbour Road", "Old Mill", "Linden School", "the castle", "North Clinic", "Dock 4"),
    "other": ("Station Square", "Hill Street", "the museum", "Elm Court", "the prison library"),
    "who": ("Amira", "Jonas", "Priya", "Tomasz", "Wen", "Fatou", "Lars"),
}


def coding(rng: random.Random) -> str:
    """A file and what is to be done with it; code in, code out."""
    path, text = rng.choice(_FILES)
    number = rng.randrange(1000, 9999)
    return f"Ticket {number}. {rng.choice(_REQUESTS)}\n\n# {path}\n{text}"


def chat(rng: random.Random) -> str:
    """A question as people ask it."""
    return rng.choice(_CHATS)


def journal_line(rng: random.Random, number: int) -> str:
    """One line of the journal that long prompts consist of."""
    words = {name: rng.choice(values) for name, values in _WORDS.items()}
    numbers = {"van": rng.randrange(1, 40), "crate": rng.randrange(100, 999)}
    numbers |= {"late": rng.randrange(2, 55), "count": rng.randrange(3, 300)}
    day, hour = divmod(number, 24)
    return f"day {day + 1:03}, {hour:02}:00: {rng.choice(_EVENTS).format(**words, **numbers)}."


JOURNAL_QUESTION = (
    "Above is the journal of a delivery service. Name the three causes of delay that cost most, "
    "with the lines that show it, and propose one change for each."
)
