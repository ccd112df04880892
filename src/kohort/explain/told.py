"""The things that sources tell about groups, and the interface of their readers.

In: nothing. Out: types. Must not know: sources, stories.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

from kohort.explain.events import Event, Handed, Timed
from kohort.explain.offsets_topic.generations import Committed, Settled
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerMember

Told: TypeAlias = Event | Handed | Settled | Committed | Bumped | ServerMember | Reconciled | Timed
"""One thing that a source tells."""


class Reader(Protocol):
    """Takes the things that sources tell."""

    def feed(self, told: Told, /) -> None:
        """Take the next thing."""

    def feed_all(self, items: Iterable[Told], /) -> object:
        """Take everything in turn."""

    def name_topics(self, names: Mapping[str, str], /) -> None:
        """Learn names of topics by their ids."""
