"""A line that goes on in the next lines, because a terminal, a mail or a document broke it.

In: a line and the lines after it. Out: the texts that the whole line may be. Must not know:
wordings, events.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from kohort.explain.lines.frames import framed

_LONGEST: Final = 1_000
"""The length of the longest piece: terminals and mails break lines much earlier."""
_NARROWEST: Final = 40
_MOST_PIECES: Final = 9
_MARKS: Final = re.compile(r"(?:[>|*#] ?|// ?)*")
"""Marks of a quotation or of a comment in front of each piece."""
_BEGINNING: Final = re.compile(r"%\d\||\[(?:GroupCoordinator|Consumer|Worker) ")
"""A line with one of these is a message's first piece, also without a time."""
_RECORD: Final = re.compile(
    r"\s*(?:at \S+\(|Caused by|\.\.\. \d+ more|[{%<]|\[(?!Group(?:Id)? )|\S+Exception\b)"
)
"""The beginning of a line that continues no other line: of a stack trace, of JSON."""


class TornLine:
    """The first piece of a line, and those after it.

    Args:
        number: of the first piece in its file.
        line: the first piece.
        certain: the line is about a group. Other lines without a time are continued by indented
            lines only.
    """

    def __init__(self, number: int, line: str, *, certain: bool = True) -> None:
        self.number = number
        self.pieces = [line]
        self._marks = _marks(line)
        timed = framed(line).at is not None
        begun = timed or _BEGINNING.search(line) is not None
        self._most = _MOST_PIECES if begun else 2
        self._indented = not begun and not certain
        """In a log without times, the next line may be another message."""

    def takes(self, line: str) -> bool:
        """Whether a line may be the next piece; then it is one."""
        bare = line.removeprefix(self._marks)
        if (
            len(self.pieces) >= self._most
            or not bare.strip()
            or len(bare) > _LONGEST
            or _RECORD.match(bare) is not None
            or (self._indented and not bare.startswith(("  ", "\t")))
            or framed(bare).at is not None
        ):
            return False
        self.pieces.append(bare)
        return True

    def texts(self) -> Iterator[tuple[str, int]]:
        """The lines that the pieces may have been, and the number of their pieces: most first."""
        for count in range(len(self.pieces), 1, -1):
            pieces = self.pieces[:count]
            # A mail program breaks a line between words, a terminal breaks it at its width.
            widths = {len(piece) for piece in pieces[:-1]}
            indented = all(piece.startswith(("  ", "\t")) for piece in pieces[1:])
            between = (" ", "") if len(widths) > 1 or indented else ("", " ")
            if indented:
                pieces = [pieces[0], *(piece.lstrip() for piece in pieces[1:])]
            for each in between:
                if each:
                    yield each.join(piece.strip() for piece in pieces), count
                else:
                    yield "".join(pieces), count


def may_be_torn(line: str) -> bool:
    """Whether a line is as long as a part of a broken line is."""
    return _NARROWEST <= len(line) < _LONGEST


def _marks(line: str) -> str:
    found = _MARKS.match(line)
    return "" if found is None else found[0]
