"""A record of several lines, with a name and its value in each line.

An object that a logger or a console printed with indents, or the pairs that pino writes after its
message. In: the first line and the lines after it. Out: the record in one line, its pairs as JSON.
Must not know: wordings, events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_OBJECT: Final = re.compile(r"(?P<before>(?:[\w.@-]+ +\| )?)(?P<indent>\s*)\{\s*$")
"""The first line of an object, with the name of a container in front or not."""
_PINO: Final = re.compile(r"\b(?:TRACE|DEBUG|INFO|WARN|ERROR|FATAL)(?: \([^()]*\))?: \S")
_PAIR: Final = re.compile(r"""(?P<indent>\s+)(?P<q>['"]?)(?P<name>[@\w.-]+)(?P=q): (?P<value>.+)""")
_NAME: Final = re.compile(r"""([{,]\s*)(?:'([^']*)'|(\w+))\s*:""")
_QUOTES: Final = "'\"`"
_MOST: Final = 200
_LONGEST: Final = 1_000


class PairedLines:
    """The lines of one record.

    Args:
        number: of the first line in its file.
        line: the first line.
        before: the text in front of the indent of each line.
        indent: that of an object's brackets; None for the pairs of pino.
    """

    def __init__(self, number: int, line: str, before: str = "", indent: int | None = None) -> None:
        self.number = number
        self.pieces = [line]
        self.around = 0
        """The number of objects that enclose this object."""
        self._before = before
        self._indent = indent
        self._ended = False

    def takes(self, line: str) -> bool:
        """Whether a line belongs to the record; then it is kept."""
        bare = line.removeprefix(self._before)
        if self._ended or len(self.pieces) >= _MOST or len(line) > _LONGEST:
            return False
        deep = len(bare) - len(bare.lstrip())
        if self._indent is None:
            if _PAIR.match(bare) is None:
                return False
        elif deep <= self._indent:
            self._ended = bare.lstrip().startswith("}")
            if not self._ended:
                return False
        self.pieces.append(line)
        return True

    def texts(self) -> Iterator[tuple[str, int]]:
        """The record in one line, and the number of its lines; nothing if it has no pairs."""
        bare = [piece.removeprefix(self._before) for piece in self.pieces]
        found = self._whole(bare) or self._pairs(bare[1:])
        if found:
            text = self._before if self._indent is not None else f"{self.pieces[0]} "
            yield text + json.dumps(found), len(self.pieces)

    def _whole(self, bare: list[str]) -> dict[str, Any]:
        """The object if it is JSON."""
        try:
            found = json.loads("\n".join(bare).strip().rstrip(","))
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def _pairs(self, bare: list[str]) -> dict[str, Any]:
        """The pairs with the smallest indent: those of the record itself."""
        pairs = [found for line in bare if (found := _PAIR.match(line)) is not None]
        least = min((len(pair["indent"]) for pair in pairs), default=0)
        return {p["name"]: _value(p["value"]) for p in pairs if len(p["indent"]) == least}


def paired(number: int, line: str, around: int = 0) -> PairedLines | None:
    """The record that a line may begin, within ``around`` objects; None if it begins none."""
    if line.endswith("{"):
        found = _OBJECT.match(line)
        if found is None:
            return None
        record = PairedLines(number, line, found["before"], len(found["indent"]))
        record.around = around
        return record
    return PairedLines(number, line) if _PINO.search(line) is not None else None


def _value(text: str) -> object:
    """A value in the notation of JSON or of JavaScript; a text if it is neither."""
    text = text.rstrip().removesuffix(",")
    if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        return text[1:-1]
    for each in (text, _NAME.sub(r'\1"\2\3":', text)):
        try:
            return json.loads(each)
        except (ValueError, RecursionError):
            continue
    return text
