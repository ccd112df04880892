"""Nominal types for ids.

In: nothing. Out: types for the type checker; at run time all of them are plain strings and
integers. Must not know: their users. A member id must not pass as a group id.
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
"""Names a request that needs exactly one answer, now or later."""

Ticket = NewType("Ticket", int)
"""Names a durable write; it comes back in ``Appended`` once the write is on disk."""

ConnectionId = NewType("ConnectionId", int)
"""Names a connection of an engine; never reused, a later connection has a higher number."""

NO_GENERATION = GenerationId(-1)
NO_MEMBER = MemberId("")
NO_CONNECTION = ConnectionId(0)


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then by partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def of(cls, name: str) -> TopicPartition:
        """The partition of a text that ``str`` made."""
        topic, _, number = name.rpartition("-")
        return cls(topic, int(number))
