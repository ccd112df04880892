"""The effect of advice, as the lab measured it in a small group with the trouble.

In: ``tried_advice.txt``. Out: one sentence by the name of a finding. Must not know: stories, the
lab.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Final

_LINES: Final = files("kohort.explain").joinpath("tried_advice.txt").read_text("utf-8").split("\n")

TRIED: Final[dict[str, str]] = {
    name: effect
    for name, found, effect in (line.partition(": ") for line in _LINES if line[:1] != "#")
    if found
}
"""By the names of findings; a finding without an entry has advice that is no setting."""
