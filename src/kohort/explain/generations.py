"""Rebalances in ``__consumer_offsets``: the changes of each generation, the pauses of commits.

In: the record of each generation of a group and its commits, in the order of the log. Out:
`Rebalance` values with moves. Must not know: the bytes of the log, files, clients.

A broker writes a group's record when the assignment has come. Records with the generation of the
record before (a static member that returned) open no rebalance. The log tells no cause: members
that came or went make one likely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kohort.embedded.consumer import decode_assignment
from kohort.explain.causes import Cause
from kohort.explain.events import Place, Side
from kohort.explain.stories import Owned, Rebalance
from kohort.model.errors import ProtocolError
from kohort.model.ids import TopicPartition

MOST_OWNED: Final = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledMember:
    """A member in a group's record."""

    member: str
    instance: str = ""
    client: str = ""
    assignment: bytes = b""

    @property
    def name(self) -> str:
        """The identity that survives a restart: the instance id, if the member has one."""
        return self.instance or self.member

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The assigned partitions; empty if the member is no consumer."""
        try:
            return frozenset(decode_assignment(self.assignment).partitions)
        except ProtocolError:
            return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A group's record: a generation with its assignment, or the empty group."""

    group: str
    generation: int
    at: float
    """Seconds since 1970 in UTC."""
    protocol: str
    members: tuple[SettledMember, ...]
    place: Place


@dataclass(slots=True)
class Generations:
    """Follows the records of one group."""

    rebalances: list[Rebalance] = field(default_factory=list)
    _owners: dict[TopicPartition, str] = field(default_factory=dict)
    """The last owner of each partition: a cooperative group has partitions without an owner."""
    _owned: int = 0
    """The number of partitions with an owner in the last generation."""
    owned: list[Owned] = field(default_factory=list)
    """The times of ownership that are over, at most `MOST_OWNED`."""
    _since: dict[TopicPartition, tuple[str, float]] = field(default_factory=dict)
    """The present owner of each partition, and the beginning of the ownership."""
    _last: float = 0.0
    _members: dict[str, SettledMember] = field(default_factory=dict)
    _generation: int | None = None
    _committed: dict[TopicPartition, float] = field(default_factory=dict)
    """The last commit of each partition."""
    _waiting: dict[TopicPartition, float] = field(default_factory=dict)
    """The last commit before the present generation, for partitions without a later one."""

    def settled(self, record: Settled) -> None:
        """A record of the group."""
        members = {member.name: member for member in record.members}
        owners = {p: member.name for member in record.members for p in member.partitions}
        if self._generation is not None and record.generation != self._generation and members:
            self.rebalances.append(self._rebalance(record, members, owners))
            self._waiting = {p: self._committed[p] for p in owners if p in self._committed}
        self._generation, self._members = record.generation, members
        self._owners |= owners
        self._owned = len(owners)
        self._hand_over(owners, record.at)

    def ownership(self) -> list[Owned]:
        """All times of ownership, up to the last record or commit."""
        self._hand_over({}, self._last)
        return self.owned

    def _hand_over(self, owners: Mapping[TopicPartition, str], at: float) -> None:
        """End the ownerships that are not in ``owners``, and begin new ones."""
        self._last = max(self._last, at)
        for partition, (owner, begin) in list(self._since.items()):
            if owners.get(partition) != owner:
                del self._since[partition]
                if len(self.owned) < MOST_OWNED:
                    self.owned.append(Owned(str(partition), owner, begin, at))
        for partition, owner in owners.items():
            self._since.setdefault(partition, (owner, at))

    def committed(self, partition: TopicPartition, at: float) -> None:
        """A commit of the group."""
        self._committed[partition] = at
        self._last = max(self._last, at)
        before = self._waiting.pop(partition, None)
        if before is None or not self.rebalances:
            return
        last = self.rebalances[-1]
        if last.pause_s is None or at - before > last.pause_s:
            self.rebalances[-1] = replace(last, pause_s=at - before)

    def _rebalance(
        self,
        record: Settled,
        members: Mapping[str, SettledMember],
        owners: Mapping[TopicPartition, str],
    ) -> Rebalance:
        before = self._owners
        moved = sum(p in before and before[p] != owner for p, owner in owners.items())
        cause, who = self._cause(members)
        if cause is Cause.UNTOLD and "cooperative" in record.protocol and len(owners) > self._owned:
            cause = Cause.SECOND_ROUND
        return Rebalance(
            side=Side.OFFSETS,
            cause=cause,
            member=who.member if who is not None else "",
            instance=who.instance if who is not None else "",
            client=who.client if who is not None else "",
            certain=False,
            before=self._generation,
            generation=record.generation,
            assigned=record.at,
            members=len(members),
            static=sum(bool(member.instance) for member in record.members),
            moved=moved,
            needless=moved - fewest_moves(before, owners),
            place=record.place,
        )

    def _cause(self, members: Mapping[str, SettledMember]) -> tuple[Cause, SettledMember | None]:
        came = [members[name] for name in sorted(members.keys() - self._members.keys())]
        gone = [self._members[name] for name in sorted(self._members.keys() - members.keys())]
        if came:
            return Cause.NEW_MEMBER, came[0]
        if gone:
            return Cause.GONE, gone[0]
        again = [m for name, m in sorted(members.items()) if m.member != self._members[name].member]
        return (Cause.STATIC_CHANGED, again[0]) if again else (Cause.UNTOLD, None)


def fewest_moves(before: Mapping[TopicPartition, str], owners: Mapping[TopicPartition, str]) -> int:
    """The fewest partitions that must move from one owner to another to get the same loads.

    Partitions without an owner before are free, and go where there is room.
    """
    kept = Counter(owner for p, owner in before.items() if p in owners)
    wanted = Counter(owners.values())
    return sum(max(0, count - wanted[name]) for name, count in kept.items())


def joined(told: Iterable[Rebalance], found: Iterable[Rebalance]) -> list[Rebalance]:
    """One list of the rebalances in logs and those in the offsets topic, by generation.

    Args:
        told: those of the logs; their causes and times are better.
        found: those of the offsets topic; only they have moves and pauses.
    """
    missing = {each.generation: each for each in found}
    merged = []
    for each in told:
        other = missing.get(each.generation)
        if other is not None and _near(each.ended, other.ended):
            del missing[each.generation]
            each = replace(  # noqa: PLW2901 - the same rebalance, with more values
                each, moved=other.moved, needless=other.needless, pause_s=other.pause_s
            )
        merged.append(each)
    merged += missing.values()
    return sorted(merged, key=lambda r: r.ended or 0)


def _near(first: float | None, second: float | None) -> bool:
    """Whether two times may belong to one rebalance; two clocks may differ by minutes."""
    return first is None or second is None or abs(first - second) < 600
