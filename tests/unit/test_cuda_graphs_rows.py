"""Cutting nested outputs to their live rows."""

from collections import namedtuple
from dataclasses import dataclass, field

import pytest
import torch

from cuda_graphs import OutputError
from cuda_graphs.rows import live_rows

Pair = namedtuple("Pair", ["left", "right"])


@dataclass(frozen=True)
class Step:
    logits: torch.Tensor
    extra: dict
    label: str = "step"
    rows: int = field(init=False, default=0)

    def __post_init__(self):
        object.__setattr__(self, "rows", self.logits.shape[0])


def table(rows):
    return torch.arange(rows * 2.0).view(rows, 2)


def test_nested_outputs_keep_their_types_and_share_memory():
    x = table(4)
    outputs = Step(logits=x, extra={"pair": Pair(x, (x, [x, None])), "flag": True, "scale": 0.5})
    cut = live_rows(outputs, rows=4, live=3)
    assert isinstance(cut, Step)
    assert (cut.label, cut.rows) == ("step", 3)
    assert cut.extra["flag"] is True
    assert cut.extra["scale"] == 0.5
    pair = cut.extra["pair"]
    assert isinstance(pair, Pair)
    assert isinstance(pair.right, tuple)
    assert isinstance(pair.right[1], list)
    assert pair.right[1][1] is None
    for tensor in (cut.logits, pair.left, pair.right[0], pair.right[1][0]):
        assert torch.equal(tensor, x[:3])
        assert tensor.data_ptr() == x.data_ptr()
    assert outputs.logits.shape == (4, 2)


def test_outputs_without_tensors_pass_through():
    assert live_rows((None, 1, "a"), rows=4, live=1) == (None, 1, "a")


@pytest.mark.parametrize("live", [2, 4])
@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            torch.zeros(()),
            r"outputs: expected a tensor with 4 rows, one per request, got shape \[\]",
        ),
        (table(8), r"outputs: expected a tensor with 4 rows, one per request, got shape \[8, 2\]"),
        ({"a": [table(4), table(3)]}, r"outputs\['a'\]\[1\]: expected a tensor with 4 rows"),
        (Step(table(4), {"x": table(5)}), r"outputs.extra\['x'\]: expected a tensor with 4 rows"),
        ((object(),), r"outputs\[0\]: expected a tensor, .* got object; return one of these"),
        ({1, 2}, "outputs: expected a tensor, .* got set"),
        (Step, "outputs: expected a tensor, .* got type"),
    ],
)
def test_outputs_that_cannot_be_cut(outputs, message, live):
    with pytest.raises(OutputError, match=message):
        live_rows(outputs, rows=4, live=live)
