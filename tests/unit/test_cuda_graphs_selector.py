"""Selector: from mode and live batch size to what runs."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cuda_graphs import (
    BufferSpec,
    CaptureSizes,
    EagerFamily,
    GraphKey,
    Selection,
    SelectionError,
    Selector,
    SizeError,
)


class Recorded:
    """A family from elsewhere: the protocol's three members and nothing else."""

    def __init__(self, name, sizes=()):
        self.name = name
        self.sizes = CaptureSizes(sizes)
        self.calls = []

    def run(self, batch_size, *args, **kwargs):
        self.calls.append((batch_size, args, kwargs))
        return self.name, batch_size


def selector(sizes=(1, 2, 8, 32)):
    made = Selector()
    made.register("plain", Recorded("plain", sizes), eager=Recorded("plain-eager"))
    made.register("speculative", Recorded("verify", sizes))
    return made


def test_a_captured_size():
    selection = selector().select("plain", 8)
    assert selection.key == GraphKey("plain", 8)
    assert (selection.batch_size, selection.padded_batch_size, selection.eager) == (8, 8, False)
    assert selection.reason == "batch size 8 is a captured size"


def test_a_size_between():
    selection = selector().select("plain", 9)
    assert selection.key == GraphKey("plain", 32)
    assert (selection.batch_size, selection.padded_batch_size, selection.eager) == (9, 32, False)
    assert selection.reason == "batch size 9 is padded to the captured size 32"


def test_above_the_largest_size():
    selection = selector().select("plain", 40)
    assert selection.key == GraphKey("plain-eager", 40)
    assert (selection.batch_size, selection.padded_batch_size, selection.eager) == (40, 40, True)
    assert selection.reason == "batch size 40 is above the largest captured size 32"


def test_a_family_without_sizes_runs_everything():
    made = Selector()
    made.register("plain", Recorded("plain"))
    selection = made.select("plain", 7)
    assert (selection.key, selection.eager) == (GraphKey("plain", 7), True)
    assert selection.reason == "family 'plain' has no captured sizes"
    assert made.fallbacks == {GraphKey("plain", 7): 1}


@given(
    st.lists(st.tuples(st.sampled_from(["plain", "other"]), st.integers(1, 50)), max_size=60),
    st.sets(st.integers(1, 40)),
)
def test_what_is_selected_runs_and_is_counted(steps, sizes):
    made = Selector()
    families = {}
    for mode in ("plain", "other"):
        families[mode] = Recorded(mode, sizes), Recorded(f"{mode}-eager")
        made.register(mode, families[mode][0], eager=families[mode][1])
    keys, eager_keys = Counter(), Counter()
    for mode, batch_size in steps:
        selection = made.select(mode, batch_size)
        assert selection.run("argument", option=1) == (selection.key.family, batch_size)
        assert selection.family.calls[-1] == (batch_size, ("argument",), {"option": 1})
        assert selection.padded_batch_size == selection.key.batch_size >= batch_size
        assert selection.eager == (batch_size > max(sizes, default=0))
        keys[selection.key] += 1
        eager_keys[selection.key] += selection.eager
    assert made.selections == keys
    assert made.fallbacks == +eager_keys


def test_tensors_run_through_a_selection():
    made = Selector()
    made.register(
        ("any", "hashable", 1),
        EagerFamily(
            "double",
            lambda batch_size, inputs: inputs["x"] * 2,
            {"x": BufferSpec((2,), torch.float32)},
        ),
    )
    x = torch.rand(3, 2)
    assert torch.equal(made.select(("any", "hashable", 1), 3).run(x=x), x * 2)
    assert made.modes == (("any", "hashable", 1),)


def test_one_family_may_serve_two_modes():
    made, shared = Selector(), Recorded("shared", [4])
    made.register("a", shared)
    made.register("b", shared)
    assert made.select("a", 3).family is made.select("b", 3).family is shared
    assert made.selections == {GraphKey("shared", 4): 2}


def test_selections_are_immutable():
    selection = selector().select("plain", 1)
    assert isinstance(selection, Selection)
    with pytest.raises(AttributeError):
        selection.batch_size = 2


def test_an_unknown_mode():
    made = selector()
    with pytest.raises(
        SelectionError, match=r"mode 'off': expected one of \['plain', 'speculative'\], got no"
    ):
        made.select("off", 1)
    assert not made.selections


def test_above_the_largest_size_without_an_eager_family():
    made = selector()
    with pytest.raises(
        SelectionError,
        match="mode 'speculative': expected a batch size of at most 32, the largest captured size "
        "of 'verify', got 33; register",
    ):
        made.select("speculative", 33)
    assert not made.selections
    assert not made.fallbacks


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True])
def test_impossible_batch_sizes(batch_size):
    made = selector()
    for possible in (1, 2):
        made.select("plain", possible)
    with pytest.raises(SizeError, match="batch size: expected an int, at least 1, got"):
        made.select("plain", batch_size)
    assert made.selections.total() == 2


def test_every_selection_is_counted():
    made = selector()
    assert made.select("plain", 3) is made.select("plain", 3)
    for _ in range(2):
        made.select("plain", 33)
    assert sorted(made.selections.values()) == [2, 2]
    assert list(made.fallbacks.values()) == [2]


def test_a_mode_registers_once():
    made = selector()
    with pytest.raises(
        SelectionError,
        match="mode 'plain': expected one registration, got a second with family 'x'",
    ):
        made.register("plain", Recorded("x"))
    assert made.select("plain", 1).family.name == "plain"


@pytest.mark.parametrize(
    ("family", "eager"),
    [
        (Recorded("plain"), None),
        (Recorded("new"), Recorded("plain-eager")),
        (Recorded("new"), Recorded("new")),
    ],
)
def test_names_are_unique(family, eager):
    made = selector()
    with pytest.raises(SelectionError, match="expected a name that no other family has"):
        made.register("new", family, eager=eager)
    assert "new" not in made.modes


def test_an_eager_family_has_no_sizes():
    with pytest.raises(SelectionError, match=r"got 'e' with \[1, 2\]; pass one that runs any"):
        Selector().register("plain", Recorded("plain", [1]), eager=Recorded("e", [1, 2]))
