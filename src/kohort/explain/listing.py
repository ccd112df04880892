"""The group at the moments at which ``kafka-consumer-groups`` listed it.

In: rows of its tables. Out: states, members, partitions and their lag. Must not know: tables, other
sources.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from kohort.explain.events import Event, Kind

_MEMBER_ID: Final = re.compile(r"\bmemberId=([^,)]+)")
_STATES: Final = (
    ("has no active members", "Empty"),
    ("is rebalancing", "PreparingRebalance"),
    ("does not exist", "Dead"),
)
"""Parts of the messages of the tool, with the states that they mean."""


@dataclass(slots=True)
class Listing:
    """The group at the moments at which ``kafka-consumer-groups`` listed it."""

    states: list[str] = field(default_factory=list)
    """Each state once, in the order of the file."""
    members: set[str] = field(default_factory=set)
    counted: int = 0
    """The number of members, as it was listed last."""
    idle: set[str] = field(default_factory=set)
    """Members without partitions."""
    partitions: set[str] = field(default_factory=set)
    alone: set[str] = field(default_factory=set)
    """Partitions without a consumer when they were listed last."""
    lag: dict[str, int] = field(default_factory=dict)

    def feed(self, event: Event) -> None:
        """Take the next line."""
        if event.kind is Kind.LISTED_PARTITION and (
            partition := event.details.get("partition", "")
        ):
            self.partitions.add(partition)
            (self.alone.discard if event.member else self.alone.add)(partition)
            lag = event.details.get("lag", "")
            if lag.isdecimal():
                self.lag[partition] = int(lag)
        if event.member:
            self.members.add(event.member)
        if (listed := event.details.get("list")) is not None:
            self.members = set(_MEMBER_ID.findall(listed))
        self.counted = len(self.members) if event.members is None else event.members
        if event.kind is Kind.LISTED_MEMBER:
            idle = event.details.get("count") == "0"
            (self.idle.add if idle else self.idle.discard)(event.member)
        state = event.state or next((s for words, s in _STATES if words in event.text), "")
        if state and state not in self.states:
            self.states.append(state)
