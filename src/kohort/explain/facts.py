"""Reads a history of kohort: the facts of a coordinator, of consumers or of the lab.

In: recorded facts; the words of Kafka for a coordinator's fact. Out: the same events, records and
commits as from logs and from the offsets topic. Must not know: files, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kohort.explain.client_times import ClientTimes
from kohort.explain.events import KOHORT, Event, Handed, Kind, Place, Side
from kohort.explain.lines.frames import Framed
from kohort.explain.offsets_topic.generations import (
    Committed,
    Settled,
    SettledMember,
    partitions_of,
)
from kohort.explain.reading import LogReader
from kohort.explain.told import Told
from kohort.model import client_facts as c
from kohort.model import member_facts as m
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    AssignmentDelivered,
    Fact,
    GroupStabilized,
    JoinPhaseCompleted,
    JoinRefused,
    MemberAdded,
    MemberRejoined,
    OffsetsCommitted,
)
from kohort.model.history_record import FACT_TYPES, AnyFact, Recorded
from kohort.model.instants import MICROS_PER_SECOND

_CALLBACKS: Final = {
    c.CallbackKind.ASSIGNED: Kind.ADDED,
    c.CallbackKind.REVOKED: Kind.REVOKED,
    c.CallbackKind.LOST: Kind.LOST,
}
_KINDS: Final[dict[type, Kind]] = {
    c.ProcessStarted: Kind.PROCESS_STARTED,
    c.ProcessStopped: Kind.PROCESS_ENDED,
    c.ProcessKilled: Kind.PROCESS_ENDED,
    c.PollReturned: Kind.PROGRESS,
    c.RequestSent: Kind.PROGRESS,
    m.SessionUnconfirmed: Kind.SESSION_EXPIRED,
    m.GenerationJoined: Kind.SYNCED,
}
_REFUSALS: Final = {
    ErrorCode.REBALANCE_IN_PROGRESS: Kind.HEARTBEAT_REBALANCING,
    ErrorCode.UNKNOWN_MEMBER_ID: Kind.UNKNOWN_MEMBER,
    ErrorCode.ILLEGAL_GENERATION: Kind.UNKNOWN_MEMBER,
    ErrorCode.FENCED_INSTANCE_ID: Kind.CLIENT_FENCED,
}


UNUSED: Final = frozenset(
    name
    for name, kind in FACT_TYPES.items()
    if not issubclass(kind, Fact)
    and kind not in _KINDS
    and kind
    not in {
        c.CallbackStarted,
        c.CallbackEnded,
        c.RecordsDelivered,
        c.PositionSet,
        c.CommitSent,
        m.PollIntervalExceeded,
        m.RequestRefused,
    }
)
"""Names of the facts that tell an explanation nothing: requests, answers and writes, mostly."""


class HistoryReader:
    """Reads one history from its beginning.

    Args:
        file: its name, for places; a place's line is the number of the fact.
        words: the text of a coordinator's fact in Kafka's words; empty if Kafka has none.
        wall_s: the time of day at instant 0, in seconds since 1970.
        dated: whether ``wall_s`` is a real time of day.
    """

    def __init__(
        self, file: str, words: Callable[[Fact], str], *, wall_s: float, dated: bool
    ) -> None:
        self.log = LogReader(file)
        """Counts the facts as lines."""
        self._file = file
        self._words = words
        self._wall_s = wall_s
        self._dated = dated
        self._protocols: dict[str, str] = {}
        self._members: dict[str, MemberAdded] = {}
        self._times = ClientTimes()

    def read(self, recorded: Recorded) -> Iterable[tuple[float, Told]]:
        """Times and values of a fact: mostly one or none."""
        fact = recorded.fact
        at = self._wall_s + recorded.at / MICROS_PER_SECOND
        if isinstance(fact, Fact):
            place = Place(self._file, recorded.sequence)
            return [(at, told) for told in self._of_coordinator(fact, at, place)]
        told = self._of_client(fact, at, recorded)
        counts = self.log.counts
        counts.lines += 1
        if told is None:
            counts.others += 1
        else:
            counts.understood += 1
        timed = self._times.read(fact, at, recorded.source)
        return [(at, each) for each in (told, timed) if each is not None]

    def skipped(self, count: int) -> None:
        """Count facts of the kinds in ``UNUSED`` that nobody read."""
        self.log.counts.lines += count
        self.log.counts.others += count

    def _of_client(self, fact: AnyFact, at: float, recorded: Recorded) -> Told | None:
        if isinstance(fact, c.RecordsDelivered):
            return Handed(
                group=fact.group_id,
                client=recorded.source,
                partition=str(fact.partition),
                first=fact.first,
                last=fact.last,
                at=at,
            )
        kind = _KINDS.get(type(fact))
        parts = limit = ""
        match fact:
            case c.PollReturned():  # as most facts are
                pass
            case c.CallbackStarted() if fact.kind is not c.CallbackKind.ASSIGNED:
                kind, parts = _CALLBACKS[fact.kind], ", ".join(map(str, fact.partitions))
            case c.CallbackEnded() if fact.kind is c.CallbackKind.ASSIGNED:
                kind, parts = _CALLBACKS[fact.kind], ", ".join(map(str, fact.partitions))
            case m.PollIntervalExceeded():
                kind, limit = Kind.POLL_EXPIRED, str(fact.limit_ms)
            case m.RequestRefused():
                kind = _REFUSALS.get(fact.error)
            case _:
                pass
        if kind is None:
            return None
        generation = getattr(fact, "generation_id", -1)
        details = {"limit": limit} if limit else {}
        if parts:
            details["partitions"] = parts
        return Event(
            kind=kind,
            side=Side.CLIENT,
            place=Place(self._file, recorded.sequence),
            text=f"{type(fact).__name__} {parts}" if parts else type(fact).__name__,
            at=at,
            dated=self._dated,
            source=recorded.source,
            maker=KOHORT,
            group=getattr(fact, "group_id", ""),
            member=getattr(fact, "member_id", ""),
            instance=self._times.instances.get(recorded.source, ""),
            generation=generation if generation >= 0 else None,
            details=details,
        )

    def _of_coordinator(self, fact: Fact, at: float, place: Place) -> Iterator[Told]:
        match fact:
            case MemberAdded():
                self._members[fact.member_id] = fact
            case JoinPhaseCompleted():
                self._protocols[fact.group_id] = fact.protocol_name
            case MemberRejoined():
                yield self._of_member(Kind.REJOINED, fact, at, place)
            case AssignmentDelivered():
                yield self._of_member(Kind.DELIVERED, fact, at, place)
            case JoinRefused() if fact.error is ErrorCode.FENCED_INSTANCE_ID:
                yield self._of_member(Kind.FENCED, fact, at, place)
            case OffsetsCommitted():
                for partition, offset in fact.offsets:
                    yield Committed(group=fact.group_id, partition=partition, offset=offset, at=at)
            case GroupStabilized():
                yield self._settled(fact, at, place)
            case _:
                pass
        frame = Framed(self._words(fact), at, self._dated)
        for event in self.log.told(frame, place):
            yield event._replace(group=fact.group_id, maker=KOHORT, versions=None)

    def _of_member(
        self,
        kind: Kind,
        fact: MemberRejoined | AssignmentDelivered | JoinRefused,
        at: float,
        place: Place,
    ) -> Event:
        """A fact about a member for which Kafka has no words."""
        added = self._members.get(fact.member_id)
        return Event(
            kind=kind,
            side=Side.BROKER,
            place=place,
            text=type(fact).__name__,
            at=at,
            dated=self._dated,
            maker=KOHORT,
            group=fact.group_id,
            member=fact.member_id,
            instance=(added.group_instance_id or "") if added is not None else "",
        )

    def _settled(self, fact: GroupStabilized, at: float, place: Place) -> Settled:
        return Settled(
            group=fact.group_id,
            generation=fact.generation_id,
            at=at,
            protocol=self._protocols.get(fact.group_id, ""),
            members=tuple(
                self._member(member, assignment) for member, assignment in fact.assignments
            ),
            place=place,
        )

    def _member(self, member: str, assignment: bytes) -> SettledMember:
        added = self._members.get(member)
        if added is None:
            return SettledMember(member=member, partitions=partitions_of(assignment))
        return SettledMember(
            member=member,
            instance=added.group_instance_id or "",
            client=added.client_id,
            host=added.client_host,
            session_s=added.session_timeout_ms / 1_000,
            rebalance_s=added.rebalance_timeout_ms / 1_000,
            partitions=partitions_of(assignment),
        )
