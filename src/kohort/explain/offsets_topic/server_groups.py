"""Rebalances of groups of the new protocol (KIP-848), from their records in ``__consumer_offsets``.

In: epochs, members and their present assignments, in the order of the log. Out: `Rebalance` values
with moves and stops. Must not know: the bytes of the log, files.

A rebalance begins with a new epoch and ends when each member has reached the epoch. Members stop
only for the partitions that they give up. Records have the coordinator's times: a member stops
before the coordinator knows, so the length of a stop is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kohort.explain.causes import Cause
from kohort.explain.events import Place, Side
from kohort.explain.joining import with_clients
from kohort.explain.offsets_topic.generations import Planner, SettledMember, fewest_possible
from kohort.explain.ownership import Owned, Ownership
from kohort.explain.rebalances import Rebalance
from kohort.model.ids import TopicPartition
from kohort.model.values import value


@value(frozen=True, slots=True, kw_only=True)
class Bumped:
    """A group has a new epoch."""

    group: str
    epoch: int
    at: float
    place: Place
    home: int | None = None


@value(frozen=True, slots=True, kw_only=True)
class ServerMember:
    """A member joined or changed, or is ``gone``."""

    group: str
    member: str
    instance: str = ""
    client: str = ""
    host: str = ""
    topics: frozenset[str] = frozenset()
    at: float
    gone: bool = False
    home: int | None = None


@value(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """A member has these partitions now, in an epoch; epoch -1: the member has left."""

    group: str
    member: str
    epoch: int
    partitions: frozenset[TopicPartition]
    """Their topics may be ids."""
    at: float
    home: int | None = None


@dataclass(slots=True)
class ServerGroup:
    """Follows the records of one group.

    Args:
        planner: finds the fewest moves of a balanced assignment.
    """

    planner: Planner | None = None
    names: dict[str, str] = field(default_factory=dict)
    """Topics by their ids; a topic with an unknown name is called by its id."""
    rebalances: list[Rebalance] = field(default_factory=list)
    ownership: Ownership = field(default_factory=Ownership)
    _members: dict[str, ServerMember] = field(default_factory=dict)
    _epochs: dict[str, int] = field(default_factory=dict)
    _changed: list[tuple[Cause, ServerMember]] = field(default_factory=list)
    """Members that came and went since the last epoch."""
    _owners: dict[TopicPartition, str] = field(default_factory=dict)
    """The last owner of each partition."""
    _before: dict[TopicPartition, str] = field(default_factory=dict)
    """The last owners when the present epoch began."""
    _holds: dict[str, frozenset[TopicPartition]] = field(default_factory=dict)
    _latest: float = 0.0
    """The time of the last record."""

    def feed(self, record: Bumped | ServerMember | Reconciled) -> None:
        """Take the next record of the group."""
        self._latest = max(self._latest, record.at)
        match record:
            case Bumped():
                self._bumped(record)
            case ServerMember():
                self._member(record)
            case Reconciled():
                self._reconciled(record)

    def drain(self) -> list[Rebalance]:
        """Return the rebalances that ended since the last call, and forget them.

        A rebalance ends when all members have reached its epoch and hold as many partitions as
        before, since a member may reach the epoch before its new partitions are free; or when
        another one begins.
        """
        present = self.rebalances[-1:]
        held = sum(map(len, self._holds.values()))
        reached = (self._epochs.get(m) == r.generation for r in present for m in self._members)
        if all(reached) and (held >= len(self._before) or not self._members):
            present = []
        drained = self.rebalances[: len(self.rebalances) - len(present)]
        self.rebalances = present
        self.ownership.owned.clear()
        return drained

    def present(self) -> dict[str, str]:
        """The present owner of each partition with one."""
        return {
            self._named(str(partition)): self._name(member)
            for member, held in self._holds.items()
            for partition in sorted(held)
        }

    def finish(self) -> tuple[list[Rebalance], list[Owned]]:
        """Take no more records; return all rebalances and times of ownership."""
        for member in self._holds:
            # A stable group has no new records, but its members still own their partitions.
            self.ownership.seen(self._name(member), self._latest)
        self.ownership.finish()
        rows = with_clients(self.rebalances, self.ownership, None)
        rows = [
            replace(r, stops=tuple(replace(s, partition=self._named(s.partition)) for s in r.stops))
            for r in rows
        ]
        return rows, [replace(o, partition=self._named(o.partition)) for o in self.ownership.owned]

    def _named(self, partition: str) -> str:
        topic, _, number = partition.rpartition("-")
        return f"{self.names.get(topic, topic)}-{number}"

    def _name(self, member: str) -> str:
        known = self._members.get(member)
        return known.instance or member if known is not None else member

    def _bumped(self, record: Bumped) -> None:
        cause, who = self._changed[0] if self._changed else (Cause.UNTOLD, None)
        self._changed.clear()
        self._before = dict(self._owners)
        self.rebalances.append(
            Rebalance(
                side=Side.OFFSETS,
                cause=cause,
                member=who.member if who is not None else "",
                instance=who.instance if who is not None else "",
                client=who.client if who is not None else "",
                host=who.host if who is not None else "",
                certain=False,
                before=record.epoch - 1,
                generation=record.epoch,
                began=record.at,
                members=len(self._members),
                place=record.place,
            )
        )

    def _member(self, record: ServerMember) -> None:
        known = self._members.pop(record.member, None)
        if not record.gone:
            self._members[record.member] = record
            if known is None:
                self._changed.append((Cause.NEW_MEMBER, record))
            elif known.topics != record.topics:
                self._changed.append((Cause.METADATA, record))
        elif known is not None:
            self._changed.append((Cause.GONE, known))
            self._epochs.pop(record.member, None)

    def _reconciled(self, record: Reconciled) -> None:
        name, at = self._name(record.member), record.at
        had = self._holds.pop(record.member, frozenset())
        if record.epoch >= 0:
            self._holds[record.member] = record.partitions
            self._epochs[record.member] = record.epoch
        self.ownership.gave(name, [str(p) for p in sorted(had - record.partitions)], at)
        self.ownership.got(name, [str(p) for p in sorted(record.partitions - had)], at)
        self._owners |= dict.fromkeys(record.partitions, name)
        if self.rebalances and record.epoch == self.rebalances[-1].generation:
            self._count_moves(at)

    def _count_moves(self, at: float) -> None:
        """Count the partitions that the present epoch has moved so far."""
        members = [
            SettledMember(member=m.member, instance=m.instance, topics=m.topics)
            for m in self._members.values()
        ]
        owners = {p: self._name(m) for m, held in self._holds.items() for p in held}
        moved = sum(self._before.get(p, owner) != owner for p, owner in owners.items())
        fewest = fewest_possible(self._before, owners, members, self.planner) if members else 0
        self.rebalances[-1] = replace(
            self.rebalances[-1],
            assigned=at,
            partitions=len(owners),
            members=len(members),
            moved=moved,
            needless=max(0, moved - fewest),
        )
