"""The lines of a group's clients: the rebalances that they take part in, and their partitions.

In: events of clients, in the order of their times. Out: the fields of rebalances, and the owners
of partitions. Must not know: the coordinator's lines, sentences.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kohort.explain.causes import Cause, clients_cause
from kohort.explain.client_names import ClientNames
from kohort.explain.events import Event, Kind, Side
from kohort.explain.limits import Limit
from kohort.explain.ownership import Ownership
from kohort.explain.partition_lists import partitions_in

Fields: TypeAlias = dict[str, Any]
"""Values of a `Rebalance`."""
_SOON_S: Final = 1.0
"""Lines of sarama about one generation come within this time."""
_BEGINNINGS: Final = frozenset(
    {Kind.REQUESTED, Kind.JOINING, Kind.HEARTBEAT_REBALANCING, Kind.REVOKED}
)
"""A client begins a rebalance with these."""
_GIVES_ALL_UP: Final = frozenset({Kind.HEARTBEAT_REBALANCING, Kind.UNKNOWN_MEMBER, Kind.LEAVING})
_LEAVES: Final = frozenset({Kind.LEAVING, Kind.PROCESS_ENDED})
_OWNING: Final = {Kind.ADDED: True, Kind.SYNCED: True, Kind.REVOKED: False, Kind.LOST: False}
"""Whether a client owns the partitions of its line from then on, or no more."""


@dataclass(slots=True)
class ClientLines:
    """Follows the clients of one group.

    Attributes:
        limit: the limit of the number of names of clients.
        clients: the clients with a line, and the last file of each.
        ownership: the owners of partitions, as clients report them.
    """

    limit: Limit
    clients: dict[str, str]
    ownership: Ownership
    _names: ClientNames = field(default_factory=ClientNames)
    _late: set[str] = field(default_factory=set)
    """Clients that left because they polled too late."""
    _subscribed: dict[str, float | None] = field(default_factory=dict)
    """When each client of sarama wrote its last subscriptions."""
    _open: dict[str, Fields] = field(default_factory=dict)
    """The rebalance under way of each client."""

    def feed(self, event: Event) -> Fields | None:
        """Take the next line; return the fields of the rebalance that this line ends, if any."""
        key = self._names.of(event)
        if key not in self.clients and not self.limit.take():
            return None
        self.clients[key] = event.place.file
        self._follow(key, event)
        kind, begun = event.kind, self._open.get(key)
        if kind is Kind.POLL_EXPIRED or "poll timeout has expired" in event.text:
            self._late.add(key)
        if kind in _BEGINNINGS or (kind is Kind.UNKNOWN_MEMBER and "re-joining" in event.text):
            return self._begins(event, key)
        if kind is Kind.JOINED:
            begun = self._open[key] = begun or self._new_fields(event, key)
            begun["joined"], begun["generation"] = event.at, event.generation
            begun["member"] = event.member or begun["member"]
            begun["assignor"] = event.details.get("protocol", "").strip("'\"")
        elif kind is Kind.SYNCED:
            return self._synced(event, key)
        elif kind is Kind.ADDED and begun is not None and "joined" in begun:
            begun["assigned"] = event.at
            return self._open.pop(key)
        elif kind in _LEAVES and begun is not None and _is_vague(begun):
            del self._open[key]  # the member gave its partitions up before its leave
        return None

    def finish(self) -> list[Fields]:
        """Take no more lines; return the fields of the rebalances under way."""
        # A client that gave its partitions up, and then did not ask to join, was closed.
        found = [each for each in self._open.values() if "asked" in each or not _is_vague(each)]
        self._open.clear()
        return found

    def _synced(self, event: Event, key: str) -> Fields | None:
        """End the rebalance of a client that has its assignment."""
        begun = self._open.pop(key, None)
        if event.maker == "sarama" and self._is_continued(key, event.at) and begun is None:
            return None
        begun = begun or self._new_fields(event, key)
        if event.generation is not None:
            begun["generation"] = event.generation
        begun["assigned"] = event.at
        if (took := event.details.get("took_ms")) and event.at is not None:
            begun["asked"] = event.at - int(took) / 1_000
            begun["began"] = min(begun["began"] or event.at, begun["asked"])
            begun["assignor"] = event.details.get("protocol", "")
        return begun

    def _is_continued(self, key: str, at: float | None) -> bool:
        """Whether a line of sarama continues the one before: each broker has its own line."""
        known, last = key in self._subscribed, self._subscribed.get(key)
        self._subscribed[key] = at
        return known and (at is None or last is None or at - last <= _SOON_S)

    def _follow(self, key: str, event: Event) -> None:
        """Note the partitions that a client got or gave up."""
        kind, at = event.kind, event.at
        if at is None:
            return
        if kind in _GIVES_ALL_UP and event.maker == "KafkaJS":
            self.ownership.ended(key, at)  # an eager member, and no line tells its partitions
        elif kind in _OWNING:
            parts = partitions_in(event.details.get("partitions", ""))
            note = self.ownership.got if _OWNING[kind] else self.ownership.gave
            note(key, parts, at)
        elif kind is Kind.PROCESS_ENDED or kind is Kind.POLL_EXPIRED:
            self.ownership.ended(key, at)
        elif kind is Kind.PROCESS_STARTED:
            self.ownership.started(key, at)
        else:
            self.ownership.seen(key, at)

    def _begins(self, event: Event, key: str) -> Fields | None:
        """A client begins a rebalance, or tells more about the rebalance that it began."""
        begun, cause = self._open.get(key), clients_cause(event.reason, event.kind)
        ended = None
        if begun is None or "joined" in begun:
            ended = begun
            self._open[key] = self._new_fields(event, key)
        elif begun["cause"] is Cause.UNTOLD and cause is not Cause.UNTOLD:
            begun["cause"] = cause
            begun["reason"] = begun["client_reason"] = event.reason
        if event.kind is Kind.JOINING:
            self._open[key]["asked"] = event.at
        return ended

    def _new_fields(self, event: Event, key: str) -> Fields:
        """The fields of a rebalance that a client begins with this event."""
        cause = clients_cause(event.reason, event.kind)
        if key in self._late:
            self._late.discard(key)
            cause = Cause.POLL_EXPIRED if cause is Cause.UNTOLD else cause
        return {
            "side": Side.CLIENT,
            "cause": cause,
            "reason": event.reason,
            "member": event.member,
            "instance": event.instance,
            "client": event.client,
            "client_reason": event.reason,
            "began": event.at,
            "place": event.place,
        }


def _is_vague(begun: Mapping[str, Any]) -> bool:
    """Whether a client told neither a reason nor a join of the rebalance that it began."""
    return "joined" not in begun and begun["cause"] is Cause.UNTOLD
