"""Nominal types for everything that is identified.

A member id must not be usable where a group id is wanted; at run time all of these are plain
strings and integers.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
GroupInstanceId = NewType("GroupInstanceId", str)
GenerationId = NewType("GenerationId", int)
ProtocolType = NewType("ProtocolType", str)
ProtocolName = NewType("ProtocolName", str)

Token = NewType("Token", int)
"""Names a request that wants exactly one answer, now or later."""

Ticket = NewType("Ticket", int)
"""Names a durable write; it comes back in ``Appended`` once the write is on disk."""

ConnectionId = NewType("ConnectionId", int)
"""Names a connection for as long as the engine knows it; never reused, later ones are higher."""

NO_GENERATION = GenerationId(-1)
NO_MEMBER = MemberId("")
NO_CONNECTION = ConnectionId(0)


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
