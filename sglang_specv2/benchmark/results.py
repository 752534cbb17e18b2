"""The result folder: what was measured, line by line, and where it comes from.

::

    provenance.json   machine, versions, settings, commands
    rounds.jsonl      one line for each arm, level and round
    timeline.jsonl    one line for each arm, round and bin of time
    recovery.jsonl    one line for each arm, length and batch
    arms.jsonl        one line for each start of an arm: how long, how much memory, or why not
    logs/             of the servers and of SGLang's client
    models/           configurations of a shape with dummy weights
    report.md, *.png, *.svg

A line is written as soon as it is measured, so an interrupt loses nothing but the round it is in.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from sglang_specv2.benchmark.errors import ResultError
from sglang_specv2.benchmark.settings import EXTENDABLE, Settings

PROVENANCE = "provenance.json"
ROUNDS, TIMELINE, RECOVERY, STARTS = (
    f"{name}.jsonl" for name in ("rounds", "timeline", "recovery", "arms")
)


_SETTINGS_ADDED_LATER = {"timeline_rounds": 1}
_FIELDS_ADDED_LATER = {TIMELINE: {"round": 0}}
"""What older folders lack, in their settings and in the lines of a file, with what holds there."""


def write_atomic(file: Path, content: str | bytes) -> None:
    """Replaces a file as a whole: whoever reads sees the old content or the new one."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(beside, file)
    finally:
        beside.unlink(missing_ok=True)


class Results:
    """A result folder, made if it is not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def existing(cls, folder: Path) -> Results:
        """Raises ResultError where there is no result folder."""
        if not (folder / PROVENANCE).is_file():
            raise ResultError(f"{folder}: expected a result folder, found no {PROVENANCE} in it")
        return cls(folder)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def models(self) -> Path:
        """Configurations of shapes that are served with dummy weights."""
        return self.folder / "models"

    def _foreign(self) -> str | None:
        """A name in the folder that is none of ours."""
        ours = {self.logs.name, self.models.name}
        entries = self.folder.iterdir() if self.folder.is_dir() else ()
        return next((entry.name for entry in entries if entry.name not in ours), None)

    def require_ours(self) -> None:
        """Raises ResultError where this is no place for results."""
        found = None
        if self.folder.exists() and not self.folder.is_dir():
            found = "a file"
        elif not (self.folder / PROVENANCE).is_file():
            found = self._foreign()
        if found is not None:
            raise ResultError(
                f"{self.folder}: expected a new, empty or result folder for --out, found {found}"
            )

    def provenance(self) -> dict[str, Any]:
        """Raises ResultError where it cannot be read, or lacks a setting of this version."""
        read = _object(self.folder / PROVENANCE)
        read["settings"] = _SETTINGS_ADDED_LATER | read.get("settings", {})
        missing = {field.name for field in fields(Settings)} - set(read["settings"])
        if missing:
            raise ResultError(
                f"{self.folder}: expected results of this version, got some without the settings "
                f"{', '.join(sorted(missing))}; read them with the commit that they name, or "
                "measure again"
            )
        return read

    def open(self, provenance: dict[str, Any]) -> None:
        """Makes the folder ready for new lines.

        Raises:
            ResultError: it holds another comparison, or anything else.
        """
        self.require_ours()
        file = self.folder / PROVENANCE
        if file.is_file():
            _require_same(self.folder, self.provenance(), provenance)
            earlier = self.provenance()["runs"]
            provenance = {**provenance, "runs": [*earlier, *provenance["runs"]]}
        self.logs.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(provenance, indent=2) + "\n")

    def append(self, name: str, lines: Iterable[dict[str, Any]]) -> None:
        """Adds lines to one of the files, all of them or none."""
        text = "".join(json.dumps(line) + "\n" for line in lines)
        file = self.folder / name
        with file.open("a+b") as out:
            if out.tell() and not _ends_with_newline(file):
                out.write(b"\n")
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())

    def lines(self, name: str) -> list[dict[str, Any]]:
        """What a file holds; a line that an interrupt cut short counts as not written."""
        file = self.folder / name
        if not file.is_file():
            return []
        added, found = _FIELDS_ADDED_LATER.get(name, {}), []
        for text in file.read_text(encoding="utf-8").splitlines():
            try:
                found.append(added | json.loads(text))
            except ValueError:
                continue
        return found

    def write(self, name: str, content: str | bytes) -> None:
        write_atomic(self.folder / name, content)


def _ends_with_newline(file: Path) -> bool:
    return file.read_bytes()[-1:] == b"\n"


def _object(file: Path) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"{file}: {error}") from error
    return parsed


def _require_same(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """What would make numbers of two runs of one folder incomparable."""
    pairs = [
        (key, old.get(key), new.get(key)) for key in ("pair", "gpu_name", "versions", "commit")
    ]
    pairs += [
        (key, old["settings"].get(key), value)
        for key, value in new["settings"].items()
        if key not in EXTENDABLE
    ]
    differences = [
        f"{key}: {before} there, {now} now" for key, before, now in pairs if before != now
    ]
    if differences:
        raise ResultError(
            f"{folder} holds another comparison ({'; '.join(differences)}). Give another --out, or "
            "the same options to continue it"
        )
