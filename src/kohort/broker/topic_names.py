"""The rules for names of topics: length, characters, pairs that collide in metrics. As in Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from kohort.storage.topic_table import OFFSETS_TOPIC

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC})

LONGEST_NAME: Final = 249
"""Kafka's: a directory is called name-partition, and file names end at 255 bytes."""

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+\Z")


def why_illegal(name: str) -> str | None:
    """Why ``name`` cannot be a topic's name, as a sentence; None when it can."""
    if not name:
        return "a topic's name cannot be empty"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if len(name) > LONGEST_NAME:
        return f"a topic's name has at most {LONGEST_NAME} characters, this one has {len(name)}"
    if not _LEGAL.match(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """The topic with the same name but for dots in place of underscores, if there is one.

    Kafka refuses such a pair, since metric names write a dot as an underscore.
    """
    flat = name.replace(".", "_")
    if flat == name and "_" not in name:
        return None
    return next(
        (other for other in existing if other != name and other.replace(".", "_") == flat), None
    )
