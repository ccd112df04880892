"""Rebalances in ``__consumer_offsets``: the changes of each generation, the pauses of commits.

In: the record of each generation of a group and its commits, in the order of the log. Out:
`Rebalance` values with moves, stops and duplicates. Must not know: the bytes of the log, files,
clients.

A broker writes a group's record when the assignment has come. Records with the generation of the
record before (a static member that returned) open no rebalance. The log tells no cause: members
that came or went make one likely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

from kohort.embedded.consumer import decode_assignment, decode_subscription
from kohort.explain.amounts import Amount, Known, Stop
from kohort.explain.causes import Cause
from kohort.explain.events import Place, Side
from kohort.explain.ownership import MOST_KEPT, Owned
from kohort.explain.rebalances import Rebalance
from kohort.model.errors import ProtocolError
from kohort.model.ids import TopicPartition
from kohort.model.values import value

Owners: TypeAlias = Mapping[TopicPartition, str]
Planner: TypeAlias = Callable[
    [Mapping[str, int], Mapping[str, frozenset[str]], Mapping[tuple[str, str], int]],
    tuple[int, int],
]
"""Sizes of topics, topics of each member, partitions held by (member, topic) -> the sum of squared
loads of the best plan, and its moves."""
_MOST_PLANNED: Final = 20_000
"""The largest product of partitions and members for which the exact planner is asked."""


@value(frozen=True, slots=True, kw_only=True)
class SettledMember:
    """A member in a group's record."""

    member: str
    instance: str = ""
    client: str = ""
    host: str = ""
    session_s: float | None = None
    """``session.timeout.ms`` in seconds; None if unknown."""
    rebalance_s: float | None = None
    """The rebalance timeout in seconds: ``max.poll.interval.ms`` of a consumer; None if unknown."""
    topics: frozenset[str] = frozenset()
    """The topics that the member wants; empty if the member is no consumer."""
    partitions: frozenset[TopicPartition] = frozenset()
    """The assigned partitions; empty if the member is no consumer."""

    @property
    def name(self) -> str:
        """The identity that survives a restart: the instance id, if the member has one."""
        return self.instance or self.member


@lru_cache(maxsize=1_024)
def partitions_of(assignment: bytes) -> frozenset[TopicPartition]:
    """The partitions in the bytes of an assignment; empty if the bytes are not a consumer's."""
    try:
        return frozenset(decode_assignment(assignment).partitions)
    except ProtocolError:
        return frozenset()


@lru_cache(maxsize=1_024)
def topics_of(subscription: bytes) -> frozenset[str]:
    """The topics in the bytes of a subscription; empty if the bytes are not a consumer's."""
    try:
        return decode_subscription(subscription).topics
    except ProtocolError:
        return frozenset()


@value(frozen=True, slots=True, kw_only=True)
class Settled:
    """A group's record: a generation with its assignment, or the empty group."""

    group: str
    generation: int
    at: float
    """Seconds since 1970 in UTC."""
    protocol: str
    members: tuple[SettledMember, ...]
    place: Place
    home: int | None = None
    """The partition of ``__consumer_offsets`` that holds the record."""


@value(frozen=True, slots=True, kw_only=True)
class Committed:
    """A commit of a group."""

    group: str
    partition: TopicPartition
    offset: int
    at: float
    topic_id: str = ""
    """As Kafka's tools print it; empty if unknown."""
    home: int | None = None


@dataclass(slots=True)
class _Progress:
    """The commits of a partition."""

    at: float
    offset: int
    rate: float | None = None
    """Records a second between the last two commits that moved the offset."""
    most: int = 0
    """The most records between two commits."""


@dataclass(slots=True)
class Generations:
    """Follows the records of one group.

    Args:
        planner: finds the fewest moves of a balanced assignment.
    """

    planner: Planner | None = None
    rebalances: list[Rebalance] = field(default_factory=list)
    owned: list[Owned] = field(default_factory=list)
    """The times of ownership that are over, at most `MOST_KEPT`."""
    last: float = 0.0
    _owners: dict[TopicPartition, str] = field(default_factory=dict)
    """The last owner of each partition: a cooperative group has partitions without an owner."""
    _owned: int = 0
    """The number of partitions with an owner in the last generation."""
    _gone: dict[TopicPartition, float] = field(default_factory=dict)
    """The end of the last ownership of each partition."""
    _since: dict[TopicPartition, tuple[str, float]] = field(default_factory=dict)
    """The present owner of each partition, and the beginning of the ownership."""
    _members: dict[str, SettledMember] = field(default_factory=dict)
    _generation: int | None = None
    _progress: dict[TopicPartition, _Progress] = field(default_factory=dict)
    _waiting: dict[TopicPartition, float] = field(default_factory=dict)
    """The last commit before the present generation, for partitions without a later one."""
    _stops: list[Stop] = field(default_factory=list)
    """The stops of the last rebalance."""
    _kept: int = 0

    def settled(self, record: Settled) -> None:
        """A record of the group."""
        members = {member.name: member for member in record.members}
        owners = {p: member.name for member in record.members for p in member.partitions}
        if self._generation is not None and record.generation != self._generation and members:
            self._end_stops()
            self.rebalances.append(self._rebalance(record, members, owners))
            self._waiting = {p: self._progress[p].at for p in owners if p in self._progress}
        self._generation, self._members = record.generation, members
        self._owners |= owners
        self._owned = len(owners)
        self._hand_over(owners, record.at)

    def committed(self, commit: Committed) -> None:
        """A commit of the group."""
        partition, at = commit.partition, commit.at
        self.last = max(self.last, at)
        progress = self._progress.get(partition)
        if progress is None:
            self._progress[partition] = _Progress(at, commit.offset)
        else:
            passed, read = at - progress.at, commit.offset - progress.offset
            if passed > 0 and read > 0 and partition not in self._waiting:
                progress.rate = read / passed
                progress.most = max(progress.most, read)
            progress.at, progress.offset = at, commit.offset
        before = self._waiting.pop(partition, None)
        if before is not None and self._kept < MOST_KEPT:
            self._kept += 1
            self._stops.append(Stop(str(partition), before, at, Known.BOUNDED))

    def present(self) -> dict[str, str]:
        """The present owner of each partition with one."""
        return {str(partition): owner for partition, (owner, _) in sorted(self._since.items())}

    def finish(self) -> list[Rebalance]:
        """Take no more records; return all rebalances."""
        self._end_stops()
        self._hand_over({}, self.last)
        return self.rebalances

    def drain(self) -> tuple[list[Rebalance], list[Stop]]:
        """Return the rebalances and stops since the last call, and forget them.

        A stop ends after its rebalance: a later call may return it.
        """
        drained = self.rebalances, self._stops
        self.rebalances, self._stops, self.owned, self._kept = [], [], [], 0
        return drained

    def _end_stops(self) -> None:
        if self._stops and self.rebalances:
            self.rebalances[-1] = replace(self.rebalances[-1], stops=tuple(self._stops))
            self._stops = []

    def _hand_over(self, owners: Owners, at: float) -> None:
        """End the ownerships that are not in ``owners``, and begin new ones."""
        self.last = max(self.last, at)
        for partition, (owner, begin) in list(self._since.items()):
            if owners.get(partition) != owner:
                del self._since[partition]
                self._gone[partition] = at
                if len(self.owned) < MOST_KEPT:
                    self.owned.append(Owned(str(partition), owner, begin, at))
        for partition, owner in owners.items():
            self._since.setdefault(partition, (owner, at))

    def _rebalance(
        self, record: Settled, members: Mapping[str, SettledMember], owners: Owners
    ) -> Rebalance:
        before = self._owners
        moving = [p for p, owner in owners.items() if before.get(p, owner) != owner]
        cause, who = self._cause(members)
        if cause is Cause.UNTOLD and "cooperative" in record.protocol and len(owners) > self._owned:
            cause = Cause.SECOND_ROUND
        fewest = fewest_possible(before, owners, members.values(), self.planner)
        return Rebalance(
            side=Side.OFFSETS,
            cause=cause,
            member=who.member if who is not None else "",
            instance=who.instance if who is not None else "",
            client=who.client if who is not None else "",
            host=who.host if who is not None else "",
            session_s=who.session_s if who is not None else None,
            certain=False,
            before=self._generation,
            generation=record.generation,
            assigned=record.at,
            members=len(members),
            static=sum(bool(member.instance) for member in record.members),
            partitions=len(owners),
            assignor=record.protocol,
            topics_differ=len({m.topics for m in members.values() if m.topics}) > 1,
            moved=len(moving),
            needless=max(0, len(moving) - fewest),
            duplicates=self._duplicates(moving, record.at),
            place=record.place,
        )

    def _duplicates(self, moving: list[TopicPartition], at: float) -> Amount | None:
        """An upper bound of the records that were processed, but not committed by the old owner.

        An owner commits while it reads. So the bound is the number of records between two commits.
        """
        known = [
            min(
                progress.most,
                progress.rate * max(0.0, self._read_until(partition, at) - progress.at),
            )
            for partition in moving
            if (progress := self._progress.get(partition)) is not None and progress.rate is not None
        ]
        return Amount(round(sum(known)), Known.BOUNDED) if known or not moving else None

    def _read_until(self, partition: TopicPartition, at: float) -> float:
        """The end of the last ownership before ``at``; an empty group reads nothing."""
        return at if partition in self._since else self._gone.get(partition, at)

    def _cause(self, members: Mapping[str, SettledMember]) -> tuple[Cause, SettledMember | None]:
        came = [members[name] for name in sorted(members.keys() - self._members.keys())]
        gone = [self._members[name] for name in sorted(self._members.keys() - members.keys())]
        if came:
            return Cause.NEW_MEMBER, came[0]
        if gone:
            return Cause.GONE, gone[0]
        again = [m for name, m in sorted(members.items()) if m.member != self._members[name].member]
        return (Cause.STATIC_CHANGED, again[0]) if again else (Cause.UNTOLD, None)


def fewest_possible(
    before: Owners,
    owners: Owners,
    members: Iterable[SettledMember],
    planner: Planner | None = None,
) -> int:
    """The fewest partitions that must move to another owner so that the loads are balanced.

    Args:
        before: the last owner of each partition.
        owners: the present owner of each partition.
        members: the members of the present generation.
        planner: is asked if members want different topics and the group is not too large. Without
            it, the fewest moves to the present loads are returned.
    """
    wanted = {member.name: member.topics for member in members}
    kept = Counter(owner for p, owner in before.items() if p in owners)
    if len(set(wanted.values())) == 1:
        least, more = divmod(len(owners), len(wanted))
        loads = sorted((kept[name] for name in wanted), reverse=True)
        stay = sum(min(n, least + (place < more)) for place, n in enumerate(loads))
        return sum(kept.values()) - stay
    if planner is None or len(owners) * len(wanted) > _MOST_PLANNED or not all(wanted.values()):
        return fewest_moves(before, owners)
    sizes = Counter(p.topic for p in owners)
    held = Counter(
        (owner, p.topic)
        for p, owner in before.items()
        if p in owners and p.topic in wanted.get(owner, ())
    )
    free = sum(p not in before for p in owners)
    return max(0, planner(sizes, wanted, held)[1] - free)


def fewest_moves(before: Owners, owners: Owners) -> int:
    """The fewest partitions that must move from one owner to another to get the same loads.

    Partitions without an owner before may go to any member.
    """
    kept = Counter(owner for p, owner in before.items() if p in owners)
    wanted = Counter(owners.values())
    return sum(max(0, count - wanted[name]) for name, count in kept.items())
