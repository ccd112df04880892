"""Quick looks at a line: whether it may tell something about a group, whether it is complete.

In: the text of a line. Out: yes or no. Must not know: frames, wordings.
"""

from __future__ import annotations

import re
from typing import Final

_MAYBE: Final = (
    *("roup", "oordinator", "eartbeat", "ember", "ebalanc", "ommit", "MAXPOLL", "poll"),
    *("ssign", "eneration", "__consumer_offsets", " subscription", "revok", "artitions lost"),
)
"""A line without any of these tells nothing about a group: most lines of a broker's log. Looking
for plain texts takes a quarter of the time of a regular expression."""
CERTAIN: Final = re.compile(
    r"GroupCoordinator|GroupMetadata|AbstractCoordinator|ConsumerCoordinator|"
    r"kafka\.coordinator\.group|Preparing to rebalance|"
    r"WorkerCoordinator|\|(?:CGRP|JOIN|LEAVE|REBALANCE|HEARTBEAT|SESSTMOUT|GRP)[A-Z]*\|"
)
"""A line with one of these is about a group, whatever it says."""

HEAD: Final = re.compile(
    r"(?:[AP]M|\d) (?:org\.apache\.)?kafka\.[\w.$]+(?: [\w$<>]+)?$|^\s*at [\w.$/@]+\("
)
"""The line in front of a message that Java's own logger writes: a time, a class and a method. Or a
line of a stack trace."""
_TABLES: Final = ("GROUP ", "GROUP,", "TOPIC ")


def may_be(line: str) -> bool:
    """Whether a line may tell something about a group."""
    for word in _MAYBE:  # noqa: SIM110 - a quarter faster than any(): most lines come here only
        if word in line:
            return True
    return False


def is_table(line: str) -> bool:
    """Whether a line is the heading of a table of Kafka's tools."""
    return line.lstrip(" \t>|").startswith(_TABLES)


def is_open(text: str) -> bool:
    """Whether a bracket or a quote has no end."""
    return any(text.count(a) > text.count(b) for a, b in ("()", "{}")) or text.count('"') % 2 == 1
