"""What an application hears of its partitions.

A listener is told inside poll, in the application's own thread, in this order: revoked or lost
before the assigned that follows. Partitions that stay are in none of the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kohort.consumer.effects import Callback
from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.consumer import Consumer

PartitionsCallback: TypeAlias = "Callable[[Consumer, list[TopicPartition]], Any]"


class RebalanceListener:
    """Override what is of interest. Every method may commit, seek, pause and ask for positions.

    An exception changes no assignment: it is raised from the poll that ran the callback.
    """

    def on_partitions_assigned(
        self, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """These were added; once for each rebalance, also when there are none."""

    def on_partitions_revoked(
        self, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """These are given up when this returns; their offsets can still be committed."""

    def on_partitions_lost(
        self, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """These may be somebody else's already; commits fail. By default as if revoked."""
        self.on_partitions_revoked(consumer, partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(RebalanceListener):
    """A listener made of functions; without ``on_lost`` a loss is told to ``on_revoke``."""

    on_assign: PartitionsCallback | None = None
    on_revoke: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None

    def on_partitions_assigned(
        self, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """Call ``on_assign``."""
        if self.on_assign is not None:
            self.on_assign(consumer, list(partitions))

    def on_partitions_revoked(
        self, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """Call ``on_revoke``."""
        if self.on_revoke is not None:
            self.on_revoke(consumer, list(partitions))

    def on_partitions_lost(
        self, consumer: Consumer, partitions: Collection[TopicPartition]
    ) -> None:
        """Call ``on_lost``, or else ``on_revoke``."""
        if self.on_lost is not None:
            self.on_lost(consumer, list(partitions))
        else:
            self.on_partitions_revoked(consumer, partitions)


def tell(
    listener: RebalanceListener, kind: Callback, consumer: Consumer, of: frozenset[TopicPartition]
) -> None:
    """Call the method that belongs to ``kind``."""
    partitions = sorted(of)
    if kind is Callback.ASSIGNED:
        listener.on_partitions_assigned(consumer, partitions)
    elif kind is Callback.REVOKED:
        listener.on_partitions_revoked(consumer, partitions)
    else:
        listener.on_partitions_lost(consumer, partitions)
