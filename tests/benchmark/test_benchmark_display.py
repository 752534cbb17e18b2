import io

import pytest
from rich.console import Console

from sglang_specv2.benchmark.display import Display, LiveDisplay
from sglang_specv2.benchmark.load import Load

LOADS = [Load("closed", 1), Load("closed", 64)]


def fill(display):
    with display.shown(4):
        for rate in (100.0, 300.0):
            display.doing("none, C=1")
            display.rate("none", LOADS[0], rate)
            display.done()
        display.failed("stock", "stock: the server ended with status 3", fewer=2)


def test_lines_tell_what_is_measured_and_what_failed(capsys):
    display = Display(["none", "stock"], LOADS)
    fill(display)
    told = capsys.readouterr().out
    assert "[1/4] none, C=1" in told
    assert "none C=1: 300 output tokens/s" in told
    assert "FAILED stock: the server ended with status 3; the other arms go on" in told
    assert [*display.cells()] == [["none", "200", "·", ""], ["stock", "·", "·", "failed"]]


def test_the_live_table_holds_medians_and_a_full_bar():
    out = io.StringIO()
    display = LiveDisplay(["none", "stock"], LOADS, Console(file=out, width=100))
    fill(display)
    table = out.getvalue().split("output tokens/s, median so far")[-1]
    assert ["│", "none", "│", "200", "│", "·", "│", "│"] in map(str.split, table.splitlines())
    assert "2/2" in table


@pytest.mark.parametrize("kind", [Display, LiveDisplay])
def test_what_is_left_out_is_said(kind, capsys):
    display = kind(["none"], LOADS)
    with display.shown(1):
        for what in ("C=64", "C=64", "C=8"):
            display.left_out("none", what)
    out = capsys.readouterr().out
    assert out.count("left out, no time for more of none, C=64") == 1
    assert out.count("left out, no time for more of none, C=8") == 1
