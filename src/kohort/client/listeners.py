"""Rebalance listeners: the callbacks of a consumer about its partitions.

In: callbacks with partitions. Out: calls of the application's methods or functions, inside poll, in
the application's own thread. Must not know: the consumer that calls.

A revocation or a loss comes before the assignment that follows. No call has
partitions that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from kohort.client import arguments
from kohort.client.errors import WrongUse
from kohort.consumer.effects import Callback
from kohort.model.ids import TopicPartition

PartitionsCallback: TypeAlias = Callable[[Any, list[TopicPartition]], Any]
"""A function of the consumer and the partitions."""


class RebalanceListener:
    """Override the callbacks of interest. Each may commit, seek, pause and ask for positions.

    An exception changes no assignment: the poll that ran the callback raises it. ``consumer`` is
    the consumer that calls.
    """

    def on_partitions_assigned(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """These were added. Comes once for each rebalance, also without partitions."""

    def on_partitions_revoked(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """These are given up after this call; their offsets can still be committed."""

    def on_partitions_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Other members may own these already, and commits fail. Default: as if revoked."""
        self.on_partitions_revoked(consumer, partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(RebalanceListener):
    """A listener made of functions; without ``on_lost`` a loss calls ``on_revoke``."""

    on_assign: PartitionsCallback | None = None
    on_revoke: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None

    def on_partitions_assigned(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Call ``on_assign``."""
        if self.on_assign is not None:
            self.on_assign(consumer, list(partitions))

    def on_partitions_revoked(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Call ``on_revoke``."""
        if self.on_revoke is not None:
            self.on_revoke(consumer, list(partitions))

    def on_partitions_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> None:
        """Call ``on_lost``, or else ``on_revoke``."""
        if self.on_lost is not None:
            self.on_lost(consumer, list(partitions))
        else:
            self.on_partitions_revoked(consumer, partitions)


def listener_of(
    listener: RebalanceListener | None,
    on_assign: PartitionsCallback | None,
    on_revoke: PartitionsCallback | None,
    on_lost: PartitionsCallback | None,
) -> RebalanceListener:
    """The listener that an application gave, or one made of its functions.

    Raises:
        WrongUse: a listener and functions.
        TypeError: no listener, or no function.
    """
    functions = Callbacks(on_assign=on_assign, on_revoke=on_revoke, on_lost=on_lost)
    for name in ("on_assign", "on_revoke", "on_lost"):
        arguments.function(getattr(functions, name), name)
    if listener is None:
        return functions
    if functions != Callbacks():
        raise WrongUse("give a listener or functions, not both")
    if not isinstance(listener, RebalanceListener):
        raise TypeError(f"listener is {listener!r}, expected a RebalanceListener")
    return listener


def tell(
    listener: RebalanceListener, kind: Callback, consumer: Any, of: frozenset[TopicPartition]
) -> None:
    """Call the method of the listener for ``kind``."""
    partitions = sorted(of)
    if kind is Callback.ASSIGNED:
        listener.on_partitions_assigned(consumer, partitions)
    elif kind is Callback.REVOKED:
        listener.on_partitions_revoked(consumer, partitions)
    else:
        listener.on_partitions_lost(consumer, partitions)
