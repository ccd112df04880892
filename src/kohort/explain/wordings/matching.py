"""Finds the message of a line among all known messages.

In: the tables of brokers and clients; the text of a line. Out: the wording and its values. Must
not know: frames, events.

A wording is tried only if the line has all its whole words; the most special wording comes first.
An index has each wording under its rarest word, so that few wordings are compared. Lines of the
same shape share the answer: a shape is a text without digits and other characters of numbers and
UUIDs. If a text has the words of a wording, its shape has the shapes of these words. So no wording
is missed.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final, NamedTuple

from kohort.explain.wordings.messages import BROKER, CLIENT, TOOL
from kohort.explain.wordings.templates import AROUND, FIELDS, LONGEST, Quick, Wording, quick

WORDINGS: Final[tuple[Wording, ...]] = tuple(
    sorted((*BROKER, *CLIENT, *TOOL), key=lambda w: -len(w.template))
)
"""The messages with most text first: they are the most special ones."""
_ANY_NAME: Final = re.compile(r"<\w+>|…")


_OF_VALUES: Final = b"0123456789abcdef-"
"""The characters of numbers and UUIDs, which a shape does not have."""
_LONGEST_SHAPE: Final = 1_000
"""The answer for a longer text is not kept."""


def _shape(text: str) -> bytes:
    return text.encode("utf-8", "replace").translate(None, _OF_VALUES)


def _words(template: str) -> list[bytes]:
    """The shapes of the words that a line has as whole words, whatever the values are."""
    text = _ANY_NAME.sub("\0", template)
    inner = text.split(" ")
    # The first word may follow a bracket, the last one may be cut or end in a full stop.
    return [shape for word in inner[1:-1] if "\0" not in word and (shape := _shape(word))]


def _indexed() -> tuple[dict[bytes, list[int]], list[int]]:
    counts = Counter(word for wording in WORDINGS for word in set(_words(wording.template)))
    by_word: dict[bytes, list[int]] = {}
    always: list[int] = []
    for number, wording in enumerate(WORDINGS):
        words = _words(wording.template)
        if words:
            by_word.setdefault(min(words, key=lambda w: (counts[w], -len(w))), []).append(number)
        else:
            always.append(number)
    return by_word, always


_BY_WORD, _ALWAYS = _indexed()
_NEEDED: Final = tuple(frozenset(_words(wording.template)) for wording in WORDINGS)
_KNOWN: Final = frozenset(word for needed in _NEEDED for word in needed)
_new: Final = tuple.__new__
"""Makes a value of a tuple in half the time of a call with the names of the fields."""


class Found(NamedTuple):
    """The message of a text, with its values; a value that the text does not tell is empty."""

    wording: Wording
    fields: tuple[str, ...]
    """The values in `FIELDS`, in that order."""
    details: dict[str, str]
    """The values under other names."""


class _Tried(NamedTuple):
    """A wording that a line may have, with the parts that each line needs."""

    wording: Wording
    shape: bytes
    """The shape of the mark."""
    mark: str
    first: str
    behind: int
    """The length of ``first``."""
    open_end: bool
    quick: Quick | None


@lru_cache(maxsize=4_096)
def _tried(words: frozenset[bytes]) -> tuple[_Tried, ...]:
    """The wordings to try for a shape that has exactly these of all words of wordings."""
    filed = (number for word in words for number in _BY_WORD.get(word, ()))
    numbers = sorted([*_ALWAYS, *(number for number in filed if _NEEDED[number] <= words)])
    return tuple(
        _Tried(w, _shape(w.mark), w.mark, w.first, len(w.first), w.open_end, quick(w))
        for w in (WORDINGS[number] for number in numbers)
    )


def _tried_for(shape: bytes) -> tuple[_Tried, ...]:
    """The wordings to try for a text of this shape."""
    return tuple(t for t in _tried(_KNOWN.intersection(shape.split(b" "))) if t.shape in shape)


_tried_again: Final = lru_cache(maxsize=4_096)(_tried_for)


def understood(text: str) -> Found | None:
    """The most special wording that fits a text, and its values; None if no wording fits."""
    length = len(text)
    short = length <= LONGEST
    tried = _tried_again if length <= _LONGEST_SHAPE else _tried_for
    shape = (text if short else text[:LONGEST]).encode("utf-8", "replace")
    bare = ""
    for wording, _, mark, first, behind, open_end, by in tried(shape.translate(None, _OF_VALUES)):
        if mark not in text:
            continue
        if by is not None and short:
            if not open_end and not bare:
                bare = text.rstrip(AROUND).removesuffix(".")
            whole = text if open_end else bare
            begin = whole.find(first)
            if begin >= 0 and (found := by.match(whole, begin + behind)) is not None:
                value = found.group
                details = {}
                for name, place in by.details:
                    if told := value(place):
                        details[name] = told
                return _new(Found, (wording, value(*by.fields), details))
        if (values := wording.match(text)) is not None:
            fields = tuple([values.pop(name, "") for name in FIELDS])
            return Found(wording, fields, values)
    return None
