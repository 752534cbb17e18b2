"""The Grafana dashboard asks for metrics that exist, and shows all of ours."""

import json
import re
from pathlib import Path

import pytest

from sglang_specv2.metrics import COUNTER_LABELS, NAMES, PREFIX

DASHBOARD = json.loads(
    (Path(__file__).parents[2] / "docs/grafana/sglang-specv2.json").read_text(encoding="utf-8")
)
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_name_is_there_and_no_other():
    asked = {name for target in TARGETS for name in re.findall(rf"{PREFIX}\w+", target["expr"])}
    assert asked == set(NAMES)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["expr"][:60])
def test_labels_are_those_of_the_metric(target):
    names = re.findall(rf"{PREFIX}(\w+?)(?:_total)?\{{", target["expr"])
    known = {"model_name"}.union(*(COUNTER_LABELS.get(name, ()) for name in names))
    grouped = re.findall(r"by \(([^)]*)\)", target["expr"])
    used = {label.strip() for group in grouped for label in group.split(",")}
    used |= set(re.findall(r"[{,](\w+)=", target["expr"]))
    used |= set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
    assert used <= known


def test_panels_do_not_overlap_and_have_their_own_numbers():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        taken |= cells
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
