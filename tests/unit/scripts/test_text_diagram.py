"""Diagrams of box-drawing characters as SVG."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from text_diagram import draw, loose_ends

ROOT = Path(__file__).resolve().parents[3]
SVG = "{http://www.w3.org/2000/svg}"
BOXES = """
┌─ outer ──────────┐
│ ┌─────┐  ┌─────┐ │
│ │ a<b ├──▶ two │ │
│ └─────┘  └─────┘ │
└──────────────────┘
"""
DIAGRAMS = {
    f"{page.relative_to(ROOT)}-{number}": source
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for number, source in enumerate(
        re.findall(r"^```diagram\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL), 1
    )
}


def elements(source, tag):
    return list(ET.fromstring(draw(source)).iter(SVG + tag))


def test_text_is_kept_as_text():
    assert [each.text for each in elements(BOXES, "text")] == ["outer", "a<b", "two"]


def test_every_box_has_a_background():
    widths = [float(each.get("width")) for each in elements(BOXES, "rect")]
    assert widths == [19 * 8, 6 * 8, 6 * 8]


def test_arrow_ends_at_the_side_of_a_box():
    (arrow,) = elements(BOXES, "polygon")
    tip = arrow.get("points").split()[1]
    (_, _, box) = elements(BOXES, "rect")
    assert float(tip.split(",")[0]) == float(box.get("x"))


def test_columns_are_aligned_with_any_font():
    (first, second) = elements("ab  cd", "text")
    assert (first.get("x"), second.get("x"), second.get("textLength")) == ("0", "32", "16")


def test_shifted_row_is_found():
    assert loose_ends("┌──┐\n │  │\n└──┘") != []
    assert loose_ends("┌──┐\n│  │\n└──┘") == []


@pytest.mark.parametrize("source", DIAGRAMS.values(), ids=DIAGRAMS)
def test_diagrams_of_the_documentation_are_aligned(source):
    assert loose_ends(source) == []
