"""The offsets of one group: the durable ones, and the writes on their way to the log.

In: values that are sent to the log, and the outcome of their writes. Out: the durable offsets.
Must not know: groups, requests, records.

Readers see durable offsets only. Writes of one partition take effect in the order of their tickets,
which is the order of the log, whatever the order of their outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kohort.coordinator.records import CommittedOffset
from kohort.model.ids import Ticket, TopicPartition

_NO_TICKET: Final = Ticket(0)


@dataclass(slots=True)
class PartitionWrites:
    """The writes of one partition's offset that are on their way to the log."""

    count: int
    sent: CommittedOffset | None
    """The value of the last one; None for a tombstone."""

    applied: Ticket
    """The latest of them that was durable; readers see its value."""


class OffsetTable:
    """The offsets of one group.

    Attributes:
        durable: the offsets that readers see.
        writes: the partitions with writes on their way.
    """

    __slots__ = ("durable", "writes")

    def __init__(self) -> None:
        self.durable: dict[TopicPartition, CommittedOffset] = {}
        self.writes: dict[TopicPartition, PartitionWrites] = {}

    def __bool__(self) -> bool:
        return bool(self.durable or self.writes)

    def __iter__(self) -> Iterator[TopicPartition]:
        """Each partition with an offset, durable or on its way."""
        yield from self.durable
        yield from (tp for tp in self.writes if tp not in self.durable)

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self.durable or tp in self.writes

    def latest(self, tp: TopicPartition) -> CommittedOffset | None:
        """The last value that was sent to the log; None: no offset."""
        under_way = self.writes.get(tp)
        return self.durable.get(tp) if under_way is None else under_way.sent

    def send(self, values: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Note values, or None for tombstones, that are sent to the log in one write."""
        for tp, value in values.items():
            under_way = self.writes.get(tp)
            if under_way is None:
                self.writes[tp] = PartitionWrites(1, value, _NO_TICKET)
            else:
                under_way.count += 1
                under_way.sent = value

    def settle(
        self,
        ticket: Ticket,
        values: Mapping[TopicPartition, CommittedOffset | None],
        *,
        durable: bool,
    ) -> None:
        """Note the outcome of the write of ``values``; readers see them if they are durable.

        A value is ignored if a later write of its partition was durable before.
        """
        for tp, value in values.items():
            under_way = self.writes[tp]
            under_way.count -= 1
            if not under_way.count:
                del self.writes[tp]
            if not durable or ticket < under_way.applied:
                continue
            under_way.applied = ticket
            if value is None:
                self.durable.pop(tp, None)
            else:
                self.durable[tp] = value
