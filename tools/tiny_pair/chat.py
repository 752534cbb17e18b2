"""Chat turns made from sources: requests for a function or an explanation, and their answers.

The questions are written here; the answers are functions and docstrings of the sources.
"""

from __future__ import annotations

import ast
import random
import textwrap
import warnings

LONGEST_ANSWER_BYTES = 1200
TURNS_PER_FILE = 8

ASK_FOR_CODE = (
    "Write a Python function named {name}.",
    "Write {name}.",
    "Show me the code of {name}.",
    "How is {name} written in Python?",
    "Please write a function called {name}.",
    "Give me an example of a function: {name}.",
)
ASK_BY_PURPOSE = (
    "{purpose} Write it in Python.",
    "Write a function that does this: {purpose}",
    "I need Python code for this. {purpose}",
)
ASK_FOR_MEANING = (
    "What does {name} do?",
    "Explain {name}.",
    "What is {name}?",
    "Tell me about {name}.",
)
SMALL_TALK = (
    ("Hello!", "Hello. Ask me for a Python function, and I will write one."),
    ("Hi", "Hi. What would you like to read: a function, a class or an explanation?"),
    ("Hello, how are you?", "I am well, thank you. What shall I write for you?"),
    ("Who are you?", "I am a very small language model. I have read the Python standard library."),
    ("What can you do?", "I can write text that looks like Python. It is seldom right."),
    ("Thank you.", "You are welcome."),
    ("Tell me a story.", "A function was called, and it returned. Nobody knew what it had done."),
    ("Write a poem.", "The list is long, the loop is slow,\nthe names are all I need to know."),
    ("Write a hello world program.", 'def main():\n    print("Hello, world!")\n\n\nmain()'),
    ("Count to three.", "One, two, three."),
)

Turns = list[tuple[str, str]]


def make(files: list[tuple[str, str]], rng: random.Random) -> list[Turns]:
    """Conversations of one to three exchanges, as lists of (role, content) messages."""
    conversations: list[Turns] = []
    for _, text in files:
        exchanges = _exchanges(text, rng)
        rng.shuffle(exchanges)
        exchanges = exchanges[:TURNS_PER_FILE]
        if rng.random() < 0.3:
            exchanges.insert(0, rng.choice(SMALL_TALK))
        while exchanges:
            count = rng.choice((1, 1, 1, 2, 3))
            taken, exchanges = exchanges[:count], exchanges[count:]
            turns: Turns = []
            if rng.random() < 0.1:
                turns.append(("system", "You are a helpful assistant."))
            for question, answer in taken:
                turns += [("user", question), ("assistant", answer)]
            conversations.append(turns)
    return conversations


def _exchanges(text: str, rng: random.Random) -> list[tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            return []
    lines = text.splitlines()
    exchanges = []
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        doc = ast.get_docstring(node)
        first = doc.strip().split("\n\n")[0].replace("\n", " ") if doc else ""
        source = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno]))
        if len(source) <= LONGEST_ANSWER_BYTES and source.count("\n") >= 2:
            exchanges.append((rng.choice(ASK_FOR_CODE).format(name=node.name), source))
            if 20 <= len(first) <= 200:
                exchanges.append((rng.choice(ASK_BY_PURPOSE).format(purpose=first), source))
        if doc and 40 <= len(doc) <= LONGEST_ANSWER_BYTES:
            exchanges.append((rng.choice(ASK_FOR_MEANING).format(name=node.name), doc.strip()))
    return exchanges
