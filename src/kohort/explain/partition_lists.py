"""Partitions in the words of clients.

In: a part of a message. Out: partitions as ``topic-number``. Must not know: messages.
"""

from __future__ import annotations

import re
from typing import Final

_PYTHON: Final = re.compile(r"TopicPartition\(topic='([^']*)', partition=(\d+)\)")
_GO: Final = re.compile(r"([\w.-]+):?\[([\d ,]*)\]")
"""franz-go writes ``topic[0 1]``, sarama ``map[topic:[0 1]]``."""
_JAVA: Final = re.compile(r"([\w.-]+)-(\d+)(?![\w.-])")


def partitions_in(text: str) -> list[str]:
    """The partitions that a text names, in the text's order; empty if there are none."""
    if found := _PYTHON.findall(text):
        return [f"{topic}-{number}" for topic, number in found]
    if found := _GO.findall(text):
        return [f"{topic}-{n}" for topic, numbers in found for n in re.findall(r"\d+", numbers)]
    return [f"{topic}-{number}" for topic, number in _JAVA.findall(text)]
