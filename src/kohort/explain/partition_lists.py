"""Partitions in the words of clients.

In: a part of a message. Out: partitions as ``topic-number``. Must not know: messages.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PYTHON: Final = re.compile(r"TopicPartition\(topic='([^']*)', partition=(\d+)\)")
_GO: Final = re.compile(r"([\w.-]+):?\[([\d ,]*)\]")
"""franz-go writes ``topic[0 1]``, sarama ``map[topic:[0 1]]`` or ``topic/1``."""
_SARAMA: Final = re.compile(r"([\w.-]+)/(\d+)")
_JAVA: Final = re.compile(r"([\w.-]+)-(\d+)(?![\w.-])")


_SHORT: Final = 500
"""Characters of the longest text that is kept with its partitions: clients repeat them."""


def partitions_in(text: str) -> tuple[str, ...]:
    """The partitions that a text names, in the text's order; empty if there are none."""
    return _kept(text) if len(text) <= _SHORT else _found(text)


def _found(text: str) -> tuple[str, ...]:
    if found := _PYTHON.findall(text):
        return tuple(f"{topic}-{number}" for topic, number in found)
    if one := _SARAMA.fullmatch(text):
        return (f"{one[1]}-{one[2]}",)
    if found := _GO.findall(text):
        pairs = ((topic, n) for topic, numbers in found for n in re.findall(r"\d+", numbers))
        return tuple(f"{topic}-{n}" for topic, n in pairs)
    return tuple(f"{topic}-{number}" for topic, number in _JAVA.findall(text))


_kept: Final = lru_cache(maxsize=4_096)(_found)
