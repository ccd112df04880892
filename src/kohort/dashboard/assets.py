"""The files of the pages: scripts, style, the page of the dashboard.

In: names. Out: texts. Must not know: groups. Needs no other package, so that ``kohort explain``
has the script that draws, too.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

DRAWING = ("picture.js", "canvas.js", "matrix.js", "detail.js", "timeline.js")
"""The scripts that draw a group, in their order."""


@cache
def asset(name: str) -> str:
    """The text of a file in the folder ``static``."""
    return files("kohort.dashboard").joinpath("static", name).read_text("utf-8")


def drawing() -> str:
    """The scripts that draw a group, as one."""
    return "\n".join(asset(name) for name in DRAWING)
