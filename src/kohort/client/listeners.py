"""Rebalance listeners: the callbacks of a consumer about its partitions.

In: callbacks with partitions. Out: calls of the application's methods or functions, inside poll, in
the application's own thread. Must not know: the consumer that calls.

A revocation or a loss comes before the assignment that follows. No call has partitions that stay.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, Final, TypeAlias

from kohort.client import arguments
from kohort.client.errors import WrongUse
from kohort.consumer.effects import Callback
from kohort.model.ids import TopicPartition

Told: TypeAlias = Any
"""The result of a callback. Only `AsyncConsumer` awaits a coroutine; other results are ignored."""

PartitionsCallback: TypeAlias = Callable[[Any, list[TopicPartition]], Any]
"""A function of the consumer and the partitions."""


class RebalanceListener:
    """Override the callbacks of interest. Each may commit, seek, pause and ask for positions.

    An exception changes no assignment: the poll that ran the callback raises it. ``consumer`` is
    the consumer that calls. With `AsyncConsumer` the methods may be coroutines.
    """

    def on_partitions_assigned(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """These partitions were added. Called once for each rebalance, also without partitions."""
        return None

    def on_partitions_revoked(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """These partitions are given up after this call; their offsets can still be committed."""
        return None

    def on_partitions_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """Other members may own these partitions already; commits fail. Default: as if revoked."""
        return self.on_partitions_revoked(consumer, partitions)

    def on_partitions_prepare(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """These partitions will come: begin to make copies, return, then call ``report_warm``.

        Only partitions of ``kohort.stateful.topics``. Default: nothing needs preparation.
        """
        consumer.report_warm(partitions)
        return None

    def on_partitions_discard(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """These prepared partitions will not come: their copies may be dropped."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(RebalanceListener):
    """A listener made of functions; without ``on_lost`` a loss calls ``on_revoke``."""

    on_assign: PartitionsCallback | None = None
    on_revoke: PartitionsCallback | None = None
    on_lost: PartitionsCallback | None = None
    on_prepare: PartitionsCallback | None = None
    on_discard: PartitionsCallback | None = None

    def on_partitions_assigned(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """Call ``on_assign``."""
        if self.on_assign is not None:
            return self.on_assign(consumer, list(partitions))
        return None

    def on_partitions_revoked(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """Call ``on_revoke``."""
        if self.on_revoke is not None:
            return self.on_revoke(consumer, list(partitions))
        return None

    def on_partitions_lost(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """Call ``on_lost``, or else ``on_revoke``."""
        if self.on_lost is not None:
            return self.on_lost(consumer, list(partitions))
        return self.on_partitions_revoked(consumer, partitions)

    def on_partitions_prepare(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """Call ``on_prepare``, or else report the partitions as warm."""
        if self.on_prepare is not None:
            return self.on_prepare(consumer, list(partitions))
        return RebalanceListener.on_partitions_prepare(self, consumer, partitions)

    def on_partitions_discard(self, consumer: Any, partitions: Collection[TopicPartition]) -> Told:
        """Call ``on_discard``."""
        if self.on_discard is not None:
            return self.on_discard(consumer, list(partitions))
        return None


def listener_of(
    listener: RebalanceListener | None, **callbacks: PartitionsCallback | None
) -> RebalanceListener:
    """The listener that an application gave, or one made of its functions.

    Raises:
        WrongUse: a listener and functions.
        TypeError: no listener, one with a misspelt method, or no function.
    """
    for name, callback in callbacks.items():
        arguments.function(callback, name)
    functions = Callbacks(**callbacks)
    if listener is None:
        return functions
    if functions != Callbacks():
        raise WrongUse("give a listener or functions, not both")
    if not isinstance(listener, RebalanceListener):
        raise TypeError(
            f"listener is {listener!r}, expected a RebalanceListener of kohort.client.listeners "
            f"with methods out of {', '.join(_METHODS)}: each takes the consumer and the partitions"
        )
    if not isinstance(listener, Callbacks) and (wrong := _misspelt(listener)):
        raise TypeError(
            f"{type(listener).__name__} has {', '.join(wrong)}, which nothing calls; the methods "
            f"of a listener are {', '.join(_METHODS)}"
        )
    return listener


_METHODS: Final = tuple(name for name in vars(RebalanceListener) if name.startswith("on_"))
_OTHER_NAMES: Final = {
    **{each.name: f"on_partitions_{each.name[3:]}" for each in fields(Callbacks)},
    **{f"on_{end}": f"on_partitions_{end}" for end in ("assigned", "revoked")},
    "on_assign": "on_partitions_assigned",
    "on_revoke": "on_partitions_revoked",
}
"""Arguments of ``subscribe`` and methods of other clients, with the method that was meant."""


def _misspelt(listener: RebalanceListener) -> list[str]:
    """Methods that look like those of a listener, which the class does not have."""
    kind, found = type(listener), []
    for name in dir(kind):
        near = get_close_matches(name, _METHODS, 1, 0.85)
        meant = _OTHER_NAMES.get(name, near[0] if near else name)
        if meant != name and getattr(kind, meant) is getattr(RebalanceListener, meant):
            found.append(name)
    return found


def tell(
    listener: RebalanceListener, kind: Callback, consumer: Any, of: frozenset[TopicPartition]
) -> Told:
    """Call the method of the listener for ``kind``; returns the coroutine if there is one."""
    methods = {
        Callback.ASSIGNED: listener.on_partitions_assigned,
        Callback.REVOKED: listener.on_partitions_revoked,
        Callback.LOST: listener.on_partitions_lost,
        Callback.PREPARE: listener.on_partitions_prepare,
        Callback.DISCARD: listener.on_partitions_discard,
    }
    return methods[kind](consumer, sorted(of))
