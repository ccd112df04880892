"""The membership as the driver of a source uses it.

In: nothing. Out: its form. Must not know: the rules of the driver, sockets, files, threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Protocol

from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.membership import MembershipSnapshot


class Group(Protocol):
    """The membership of the driver, such as ``kohort.client.membership.GroupMembership``."""

    def join(self) -> None:
        """Begin to join, in the background."""
        ...

    def subscribe(self, topics: Collection[str]) -> None:
        """Replace the subscription, in the background."""
        ...

    def touch(self) -> None:
        """Restart the poll deadline."""
        ...

    def snapshot(self) -> MembershipSnapshot[TopicPartition]:
        """The present state; raises KohortError after a fatal error of the membership."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets to the group, fenced by the generation; raises KohortError."""
        ...

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The group's committed offsets; partitions without one are missing."""
        ...

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Give up revoked partitions."""
        ...

    def report_warm(self, partitions: Collection[TopicPartition]) -> None:
        """This application has copies of the states of these partitions of other members."""
        ...

    def drain(self) -> None:
        """Ask the group to take everything away."""
        ...

    @property
    def drained(self) -> bool:
        """Whether a drain is over."""
        ...

    def leave(self) -> None:
        """Leave the group and stop; harmless when it never joined."""
        ...
