"""Finds the message of a line among all known messages.

In: the tables of brokers and clients; the text of a line. Out: the wording and its values. Must
not know: frames, events.

Only the wordings of which a line has all whole words are tried, the most special one first. Each
wording is filed under its rarest word, so that few are looked at; lines with the same words share
the answer.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Final

from kohort.explain.wordings.broker import BROKER
from kohort.explain.wordings.client import CLIENT
from kohort.explain.wordings.templates import LONGEST, Wording
from kohort.explain.wordings.tool import TOOL

WORDINGS: Final[tuple[Wording, ...]] = tuple(
    sorted((*BROKER, *CLIENT, *TOOL), key=lambda w: -len(w.template))
)
"""The messages with most text first: they are the most special ones."""
_ANY_NAME: Final = re.compile(r"<\w+>|…")


def _words(template: str) -> list[str]:
    """The words of a message that a line has as whole words, whatever the values are."""
    text = _ANY_NAME.sub("\0", template)
    inner = text.split(" ")
    # The first word may follow a bracket, the last one may be cut or end in a full stop.
    return [word for word in inner[1:-1] if word and "\0" not in word]


def _filed() -> tuple[dict[str, list[int]], list[int]]:
    counts = Counter(word for wording in WORDINGS for word in set(_words(wording.template)))
    by_word: dict[str, list[int]] = {}
    always: list[int] = []
    for number, wording in enumerate(WORDINGS):
        words = _words(wording.template)
        if words:
            by_word.setdefault(min(words, key=lambda w: (counts[w], -len(w))), []).append(number)
        else:
            always.append(number)
    return by_word, always


_BY_WORD, _ALWAYS = _filed()
_NEEDED: Final = tuple(frozenset(_words(wording.template)) for wording in WORDINGS)
_KNOWN: Final = frozenset(word for needed in _NEEDED for word in needed)


@lru_cache(maxsize=4_096)
def _tried(words: frozenset[str]) -> tuple[Wording, ...]:
    """The wordings to try for a line that has these of the words of all wordings."""
    filed = (number for word in words for number in _BY_WORD.get(word, ()))
    numbers = sorted([*_ALWAYS, *(number for number in filed if _NEEDED[number] <= words)])
    return tuple(WORDINGS[number] for number in numbers)


def understood(text: str) -> tuple[Wording, dict[str, str]] | None:
    """The most special wording that fits a text, and its values; None if no wording fits."""
    beginning = text if len(text) <= LONGEST else text[:LONGEST]
    for wording in _tried(_KNOWN.intersection(beginning.split(" "))):
        # Asked here, too, since a call costs more than this search.
        if wording.mark in text and (values := wording.match(text)) is not None:
            return wording, values
    return None
