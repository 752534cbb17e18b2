"""Training text: the sources that ship with Python, and chat turns made from them.

Files are split into training and held-out ones by a hash of their path, so the split is the same
whatever the seed. Everything derived from a held-out file is held out too.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from . import chat
from .tokenizer import END_ID, encode, encode_chat

HELD_OUT_PERCENT = 3
SKIPPED_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "lib2to3", "ensurepip"}
# Tables of characters, byte codes and key symbols: nothing to learn, and a pattern that repeats
# for pages teaches a small model to repeat.
SKIPPED_FILES = re.compile(
    r"encodings/(cp|iso|mac|koi|tis|hp|ptcp|kz)|keysym|badsyntax|cjkencodings"
)
LONGEST_FILE_BYTES = 200_000
LONGEST_LINE_BYTES = 160
RULER = re.compile(r"([^\sA-Za-z0-9])\1{5,}")
BLANK_LINES = re.compile(r"\n{4,}")


@dataclass(frozen=True)
class Corpus:
    """Token streams of both splits, documents separated by END.

    `train` and `held_out` are int64 [N]; `train_starts` int64 [D] are the documents' first
    positions in `train`. `held_out_files` are cleaned texts, `held_out_chats` user prompts.
    """

    train: Tensor
    train_starts: Tensor
    held_out: Tensor
    held_out_files: list[str]
    held_out_chats: list[str]
    summary: dict[str, int]


def build(text_folder: Path, seed: int) -> Corpus:
    """Read all sources under `text_folder` (a standard library) and make both splits.

    Raises:
        FileNotFoundError: fewer than 20 usable sources are there.
    """
    files: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
    for path in _sources(text_folder):
        text = clean(path.read_text(encoding="utf-8", errors="ignore"))
        if len(text) >= 200:
            name = path.relative_to(text_folder).as_posix()
            files[is_held_out(name)].append((name, text))
    if min(len(part) for part in files.values()) < 1 or sum(map(len, files.values())) < 20:
        raise FileNotFoundError(
            f"expected at least 20 Python sources under {text_folder}, got "
            f"{sum(map(len, files.values()))}; give the folder of a standard library with --text"
        )

    rng = random.Random(seed)
    documents = {
        split: [encode(text) for _, text in part]
        + [encode_chat(turns, add_generation_prompt=False) for turns in chat.make(part, rng)]
        for split, part in files.items()
    }
    for part in documents.values():
        rng.shuffle(part)
    train, starts = _stream(documents[False])
    held_out, _ = _stream(documents[True])
    held_out_turns = chat.make(files[True], random.Random(seed))
    prompts = [next(text for role, text in turns if role == "user") for turns in held_out_turns]
    small_talk = {question for question, _ in chat.SMALL_TALK}
    return Corpus(
        train=train,
        train_starts=starts,
        held_out=held_out,
        held_out_files=[text for _, text in files[True]],
        held_out_chats=[prompt for prompt in prompts if prompt not in small_talk],
        summary={
            "files": len(files[False]),
            "documents": len(documents[False]),
            "bytes": int(train.numel()),
            "held_out_files": len(files[True]),
            "held_out_bytes": int(held_out.numel()),
        },
    )


def is_held_out(name: str) -> bool:
    """Whether the file of this path, relative to the text folder, is in the held-out split."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def clean(text: str) -> str:
    """Text without what would teach a small model to loop: rulers, tables, runs of blank lines."""
    lines = (line.rstrip() for line in text.expandtabs().splitlines())
    kept = [line for line in lines if len(line) <= LONGEST_LINE_BYTES and not RULER.search(line)]
    return BLANK_LINES.sub("\n\n\n", "\n".join(kept)).strip() + "\n"


def _sources(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        wanted = SKIPPED_FOLDERS.isdisjoint(parts) and not SKIPPED_FILES.search(path.as_posix())
        if wanted and path.stat().st_size <= LONGEST_FILE_BYTES:
            yield path


def _stream(documents: list[list[int]]) -> tuple[Tensor, Tensor]:
    starts, length = [], 0
    for document in documents:
        starts.append(length)
        length += len(document) + 1
    # uint16 keeps the copy small; a list of 30 million Python integers is slow to convert.
    flat = numpy.empty(length, dtype=numpy.uint16)
    for start, document in zip(starts, documents, strict=True):
        flat[start : start + len(document)] = document
        flat[start + len(document)] = END_ID
    return torch.from_numpy(flat.astype(numpy.int64)), torch.tensor(starts)
