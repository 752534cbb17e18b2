import json

import pytest
import result_folders

from sglang_specv2.benchmark.errors import ResultError
from sglang_specv2.benchmark.results import ROUNDS, Results, write_atomic
from sglang_specv2.benchmark.settings import Settings

SETTINGS = Settings(arms=("none",), levels=(1,))


def opened(folder, settings=SETTINGS, **changed):
    results = Results(folder)
    results.open(result_folders.provenance(settings, **changed))
    return results


def test_lines_come_back(tmp_path):
    results = opened(tmp_path / "r")
    results.append(ROUNDS, [{"a": 1}, {"a": 2}])
    results.append(ROUNDS, [{"a": 3}])
    assert results.lines(ROUNDS) == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert results.lines("never-written.jsonl") == []


def test_a_line_that_was_cut_short_is_not_there_and_does_no_harm(tmp_path):
    results = opened(tmp_path / "r")
    (results.folder / ROUNDS).write_text('{"a": 1}\n{"a": 2, "b')
    results.append(ROUNDS, [{"a": 3}])
    assert results.lines(ROUNDS) == [{"a": 1}, {"a": 3}]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path):
    file = tmp_path / "report.md"
    write_atomic(file, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(file, "new \ud800")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_same_comparison_goes_on_and_remembers_both_calls(tmp_path):
    opened(tmp_path / "r")
    longer = Settings(arms=("none", "stock"), levels=(1, 2), rounds=9, time_limit_s=5)
    results = opened(tmp_path / "r", longer)
    assert len(results.provenance()["runs"]) == 2
    assert results.provenance()["settings"]["arms"] == ["none", "stock"]


@pytest.mark.parametrize(
    ("settings", "changed", "told"),
    [
        (Settings(arms=("none",), levels=(1,), output_tokens=7), {}, "output_tokens: 256 there"),
        (Settings(arms=("none",), levels=(1,), seed=3), {}, "seed: 1 there, 3 now"),
        (SETTINGS, {"gpu_name": "NVIDIA H100"}, "gpu_name: None there, NVIDIA H100 now"),
        (SETTINGS, {"pair": "another"}, "pair: a pair there, another now"),
    ],
)
def test_another_comparison_is_refused(tmp_path, settings, changed, told):
    opened(tmp_path / "r")
    with pytest.raises(ResultError, match=told):
        opened(tmp_path / "r", settings, **changed)


def test_a_folder_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("…")
    with pytest.raises(ResultError, match=r"found thesis\.tex"):
        opened(tmp_path)


def test_no_result_folder(tmp_path):
    with pytest.raises(ResultError, match=r"found no provenance\.json"):
        Results.existing(tmp_path)


def test_a_broken_provenance(tmp_path):
    results = opened(tmp_path / "r")
    (results.folder / "provenance.json").write_text("{")
    with pytest.raises(ResultError, match=r"provenance\.json: Expecting"):
        results.provenance()


def test_provenance_is_plain_json(tmp_path):
    results = opened(tmp_path / "r")
    text = (results.folder / "provenance.json").read_text()
    assert json.loads(text) == results.provenance() == result_folders.provenance(SETTINGS)
