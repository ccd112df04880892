"""The committed pictures of the documentation equal new drawings, and their words are readable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from tests.tidy.drawings import DRAWN, FROM_THE_LAB, rooms
from tests.tidy.rules import layers

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    ("path", "draw"),
    [
        *(pytest.param(*each, id=each[0].stem) for each in DRAWN.items()),
        *(
            pytest.param(*each, id=each[0].stem, marks=pytest.mark.slow)
            for each in FROM_THE_LAB.items()
        ),
    ],
)
def test_committed_picture_equals_a_new_drawing(path: Path, draw: Callable[[], str]) -> None:
    assert path.read_text(encoding="utf-8") == draw(), "run `make docs`"


@pytest.mark.parametrize("path", [*DRAWN, *FROM_THE_LAB], ids=lambda path: path.stem)
def test_text_of_a_picture_stays_on_the_card(path: Path) -> None:
    root = ET.parse(path).getroot()
    width = float(root.get("width", ""))
    for text in root.iter(f"{SVG}text"):
        if text.get("x") is None:
            continue
        length = len(text.text or "") * 0.55 * float(text.get("font-size", "11"))
        anchor = text.get("text-anchor")
        share = {"start": 0, "middle": 0.5, "end": 1}[str(anchor)]
        left = float(text.get("x", "")) - share * length
        assert left >= 0, text.text
        assert left + length <= width + 10, text.text


def test_picture_of_rooms_has_a_box_for_each_room_of_the_contract() -> None:
    bold = [
        text.text
        for text in ET.fromstring(rooms()).iter(f"{SVG}text")
        if text.get("font-weight") == "bold"
    ]
    assert bold[1:] == [room for layer in layers() for room in layer]
