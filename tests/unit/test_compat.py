import ast
import gc
import importlib.util
import time
from pathlib import Path

import pytest

from sglang_specv2 import compat, cpu
from sglang_specv2.cpu.seams import CPU_LEDGER
from sglang_specv2.errors import CompatibilityError
from sglang_specv2.seams import LEDGER, Seam
from sglang_specv2.sglang_source import Source
from sglang_specv2.version import SUPPORTED_SGLANG

ALL = (*LEDGER, *CPU_LEDGER)
MOST_FILES, MOST_PARSES = 80, 2.5
"""What the check may cost: files that it reads, and times the parsing of them."""
INSTALLED = Path(importlib.util.find_spec("sglang").submodule_search_locations[0])


def seam(path, expected):
    return Seam(path, expected, use="a test", why="it is there", until="never")


@pytest.mark.parametrize("names", [LEDGER, ALL], ids=["without the CPU engine", "with it"])
def test_installed_sglang_is_as_the_ledger_says(names):
    assert compat.check(names) == []


def test_every_entry_is_looked_for():
    renamed = [entry._replace(path=f"{entry.path}_renamed") for entry in ALL]
    differences = compat.check(renamed, INSTALLED)
    assert differences == [
        f"{entry.path}: expected {entry.expected}, not found ({entry.use})" for entry in renamed
    ]


def test_every_entry_expects_something():
    found = Source(INSTALLED).find
    differences = compat.check([entry._replace(expected="(other)") for entry in ALL], INSTALLED)
    assert differences == [
        f"{entry.path}: expected (other), found {found(entry.path)} ({entry.use})" for entry in ALL
    ]


def test_ledger_names_each_path_once_and_says_why():
    paths = [entry.path for entry in ALL]
    assert len(set(paths)) == len(paths)
    assert all(entry.use and entry.why and entry.until for entry in ALL)


@pytest.mark.parametrize("installed", [False, True])
def test_the_cpu_engines_names_are_relied_on_where_it_is_installed(fresh, monkeypatch, installed):
    monkeypatch.setattr(cpu, "_installed", installed)
    monkeypatch.setattr("sglang_specv2.cpu.seams.CPU_LEDGER", (seam("sglang.gone", "class"),))
    missing = ["sglang.gone: expected class, not found (a test)"]
    assert compat.check() == (missing if installed else [])


def fastest_s(work):
    times_s = []
    for _ in range(3):
        start = time.process_time()
        work()
        times_s.append(time.process_time() - start)
    return min(times_s)


def test_the_check_costs_a_start_little(monkeypatch):
    """Measured in parses, since machines differ: a second or less on most."""
    read, parse = [], ast.parse
    monkeypatch.setattr(ast, "parse", lambda text: read.append(text) or parse(text))
    assert compat.check(ALL, INSTALLED) == []
    monkeypatch.undo()
    assert len(set(read)) == len(read) <= MOST_FILES

    check_s = fastest_s(lambda: compat.check(ALL, INSTALLED))
    gc.disable()
    try:
        parsing_s = fastest_s(lambda: [parse(text) for text in read])
    finally:
        gc.enable()
    assert check_s < MOST_PARSES * parsing_s


@pytest.mark.parametrize("enabled", [False, True])
def test_the_check_leaves_the_collector_as_it_was(enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        compat.check(LEDGER[:1], INSTALLED)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


CREATE_WORKER = "sglang.srt.speculative.spec_info.SpeculativeAlgorithm.create_worker"


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("def create_worker(", "def make_worker(", "not found"),
        ("self, server_args: ServerArgs\n", "self, args: ServerArgs\n", "found (self, args)"),
    ],
    ids=["renamed", "another parameter"],
)
def test_a_changed_sglang_is_reported(tmp_path, old, new, found):
    original = INSTALLED / "srt" / "speculative" / "spec_info.py"
    changed = tmp_path / "srt" / "speculative" / "spec_info.py"
    changed.parent.mkdir(parents=True)
    source = original.read_text(encoding="utf-8")
    assert old in source
    changed.write_text(source.replace(old, new), encoding="utf-8")
    (difference,) = compat.check([e for e in LEDGER if e.path == CREATE_WORKER], tmp_path)
    assert difference.startswith(f"{CREATE_WORKER}: expected (self, server_args), {found}")


SOURCE = """
import functools
from typing import TYPE_CHECKING
from sglang.base import Base, helper as renamed
from .base import Root as FromHere
if TYPE_CHECKING:
    from sglang.other import Late
LIMIT: int = 3
A, B = 1, 2
try:
    from sglang.base import fast as chosen
except ImportError:
    chosen = None

class Late:
    field: int

class Root(FromHere): ...

class Worker(Base):
    shared = 1
    def __init__(self, a, *, b=None, **rest):
        self.x, self.y = a, b
        self.z: int = 3
    @property
    def ready(self): return True
    @staticmethod
    def name(x, /, y, *more): ...
    @functools.cached_property
    def cached(self): ...
    async def step(me, batch):
        me.done = True
        other.elsewhere = 1
        for item in batch:
            try: ...
            except ValueError: me.deep = item
"""
BASE = """
def helper(p, q): ...
def fast(): ...
class Root:
    def inherited(self, batch): ...
class Base(Root):
    def __init__(self): self.from_base = 1
"""


@pytest.fixture
def package(tmp_path):
    (tmp_path / "mod.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "base.py").write_text(BASE, encoding="utf-8")
    (tmp_path / "other.py").write_text("from sglang.mod import Late, Loop\n", encoding="utf-8")
    (tmp_path / "loop.py").write_text("from sglang.loop2 import gone\n", encoding="utf-8")
    (tmp_path / "loop2.py").write_text("from sglang.loop import gone\n", encoding="utf-8")
    sub = tmp_path / "pack"
    sub.mkdir()
    (sub / "__init__.py").write_text(
        "from ..mod import Worker\nfrom .inner import Base\n", encoding="utf-8"
    )
    (sub / "inner.py").write_text(
        "from ..base import Base\nclass Base(Base):\n    own = 1\n", encoding="utf-8"
    )
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "leaf.py").write_text("LIMIT = 1\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("mod.LIMIT", "attribute"),
        ("mod.B", "attribute"),
        ("mod.Worker", "class"),
        ("mod.Worker.__init__", "(self, a, *, b, **rest)"),
        ("mod.Worker.__init__", "(self, a, ...)"),
        ("mod.Worker.__init__", "(self, ...)"),
        ("mod.Worker.name", "(x, y, *more)"),
        ("mod.Worker.shared", "attribute"),
        ("mod.Worker.x", "attribute"),
        ("mod.Worker.y", "attribute"),
        ("mod.Worker.z", "attribute"),
        ("mod.Worker.done", "attribute"),
        ("mod.Worker.ready", "property"),
        ("mod.Worker.cached", "property"),
        ("mod.Worker.step", "(me, batch)"),
        ("mod.Worker.deep", "attribute"),
        ("mod.Worker.from_base", "attribute"),
        ("mod.Worker.inherited", "(self, batch)"),
        ("mod.Worker.inherited", "(self, batch, ...)"),
        ("mod.renamed", "(p, q)"),
        ("mod.Late.field", "attribute"),
        ("other.Late", "class"),
        ("pack.Worker.ready", "property"),
        ("pack", "module"),
        ("pack.Base.own", "attribute"),
        ("pack.Base.from_base", "attribute"),
        ("pack.inner.Base.inherited", "(self, batch)"),
        ("mod.Root.inherited", "(self, batch)"),
        ("bare.leaf.LIMIT", "attribute"),
    ],
)
def test_found(package, path, expected):
    assert compat.check([seam(f"sglang.{path}", expected)], package) == []


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("mod.Worker.elsewhere", "attribute"),
        ("mod.Worker.ready", "attribute"),
        ("mod.Worker.ready", "(self)"),
        ("mod.Worker.x", "property"),
        ("mod.Worker", "(self, a, *, b, **rest)"),
        ("mod.Worker.__init__", "(self, a)"),
        ("mod.Worker.__init__", "(self, a, b, ...)"),
        ("mod.Worker.inherited", "(self, bat, ...)"),
        ("mod.nothing", "attribute"),
        ("mod.Worker.step.inner", "attribute"),
        ("nowhere.Worker", "class"),
        ("other.Loop", "class"),
        ("loop.gone", "class"),
        ("pack.Base.gone", "attribute"),
        ("bare.LIMIT", "attribute"),
    ],
)
def test_not_found(package, path, expected):
    (difference,) = compat.check([seam(f"sglang.{path}", expected)], package)
    assert difference.startswith(f"sglang.{path}: expected {expected}, ")
    assert difference.endswith("(a test)")


@pytest.fixture
def fresh():
    compat._installed_differences.cache_clear()
    yield
    compat._installed_differences.cache_clear()


@pytest.mark.parametrize("installed", ["0.5.18", "0.5.17.post1", "0.5.16", "0.5.17rc1"])
def test_another_version_is_a_difference(fresh, monkeypatch, installed):
    monkeypatch.setattr(compat, "version", lambda name: installed)
    assert compat.check()[0] == f"SGLang: expected {SUPPORTED_SGLANG}, found {installed}"


def test_local_builds_of_the_version_are_the_version(fresh, monkeypatch):
    monkeypatch.setattr(compat, "version", lambda name: f"{SUPPORTED_SGLANG}+cu130")
    assert compat.check() == []


def test_no_sglang_at_all(fresh, monkeypatch):
    monkeypatch.setattr(compat.importlib.util, "find_spec", lambda name: None)
    assert compat.check() == [f"SGLang: expected {SUPPORTED_SGLANG}, found none installed"]


def test_require_lists_every_difference_and_the_ways_out(fresh, monkeypatch):
    monkeypatch.setattr(compat, "check", lambda: ["first", "second"])
    with pytest.raises(CompatibilityError) as error:
        compat.require()
    text = str(error.value)
    assert "  - first\n  - second\n" in text
    assert f"sglang=={SUPPORTED_SGLANG}" in text
    assert "SGLANG_SPECV2=0" in text


def test_require_accepts_the_installed_sglang():
    compat.require()
