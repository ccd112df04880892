"""Owners of partitions as the members of a group tell them, and the time without an owner.

In: partitions that a member got or gave up, members that ended, with their times. Out: the present
owner of each partition, the longest time without one. Must not know: processes, clocks.
"""

from __future__ import annotations

from collections.abc import Iterable


class Holders:
    """The owners of the partitions of one topic.

    A partition is idle from the end of an ownership until the next one begins: a partition that had
    no owner yet is not idle.

    Args:
        partitions: their number.
    """

    def __init__(self, partitions: int) -> None:
        self._count = partitions
        self.owners: dict[int, str] = {}
        """The present owner, by partition."""
        self._idle: dict[int, float] = {}
        """Since when a partition is idle."""
        self._longest = 0.0
        self._total = 0.0
        """Partition-seconds of the times without an owner that are over."""

    def got(self, member: str, partitions: Iterable[int], at: float) -> None:
        """A member owns these partitions from now on."""
        for partition in partitions:
            self.owners[partition] = member
            since = self._idle.pop(partition, None)
            if since is not None:
                self._longest = max(self._longest, at - since)
                self._total += max(0.0, at - since)

    def gave(self, member: str, partitions: Iterable[int], at: float) -> None:
        """A member gave these partitions up; a resource with another owner keeps its owner."""
        for partition in partitions:
            if self.owners.get(partition) == member:
                del self.owners[partition]
                self._idle[partition] = at

    def ended(self, member: str, at: float) -> None:
        """A member owns nothing any more."""
        self.gave(member, [p for p, owner in self.owners.items() if owner == member], at)

    @property
    def complete(self) -> bool:
        """Whether each partition has an owner."""
        return len(self.owners) == self._count

    def idle(self, now: float) -> float:
        """The partition-seconds without an owner, up to now."""
        return self._total + sum(max(0.0, now - since) for since in self._idle.values())

    def longest_idle(self, now: float) -> float:
        """The longest time in seconds in which one partition had no owner, up to now."""
        return max([self._longest, *(now - since for since in self._idle.values())])
