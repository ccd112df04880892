"""Reads a history of kohort: the facts of a coordinator, of consumers or of the lab.

In: recorded facts; the words of Kafka for a coordinator's fact. Out: the same events, records and
commits as from logs and from the offsets topic. Must not know: files, clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kohort.explain.client_times import ClientTimes
from kohort.explain.events import Event, Handed, Kind, Place, Side
from kohort.explain.frames import Framed
from kohort.explain.generations import Committed, Settled, SettledMember, partitions_of
from kohort.explain.reading import LogReader
from kohort.explain.told import Told
from kohort.model import client_facts as c
from kohort.model import member_facts as m
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    Fact,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberAdded,
    OffsetsCommitted,
)
from kohort.model.history_record import AnyFact, Recorded
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

    def read(self, recorded: Recorded) -> Iterator[tuple[float, Told]]:
        """Times and values of a fact: mostly one or none."""
        at = self._wall_s + recorded.at / MICROS_PER_SECOND
        place = Place(self._file, recorded.sequence)
        for told in self._told(recorded.fact, at, place, recorded.source):
            yield at, told

    def _told(self, fact: AnyFact, at: float, place: Place, source: str) -> Iterator[Told]:
        if isinstance(fact, Fact):
            yield from self._coordinators(fact, at, place)
            return
        self.log.counts.lines += 1
        event = _clients(fact)
        if isinstance(fact, c.RecordsDelivered):
            yield Handed(
                group=fact.group_id,
                client=source,
                partition=str(fact.partition),
                first=fact.first,
                last=fact.last,
                at=at,
            )
        elif event is None:
            self.log.counts.others += 1
            if (timed := self._times.read(fact, at, source)) is not None:
                yield timed
            return
        else:
            instance = self._times.instances.get(source, "")
            yield event._replace(
                place=place, at=at, dated=self._dated, source=source, instance=instance
            )
        self.log.counts.understood += 1
        if (timed := self._times.read(fact, at, source)) is not None:
            yield timed

    def _coordinators(self, fact: Fact, at: float, place: Place) -> Iterator[Told]:
        match fact:
            case MemberAdded():
                self._members[fact.member_id] = fact
            case JoinPhaseCompleted():
                self._protocols[fact.group_id] = fact.protocol_name
            case OffsetsCommitted():
                for partition, offset in fact.offsets:
                    yield Committed(group=fact.group_id, partition=partition, offset=offset, at=at)
            case GroupStabilized():
                yield self._settled(fact, at, place)
            case _:
                pass
        frame = Framed(self._words(fact), at, self._dated)
        for event in self.log.told(frame, place):
            yield event._replace(group=fact.group_id, maker="kohort", versions=None)

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


def _clients(fact: AnyFact) -> Event | None:
    """The event of a client's fact, without time and place; None if the fact means no event."""
    kind = _KINDS.get(type(fact))
    match fact:
        case c.CallbackStarted() if fact.kind is not c.CallbackKind.ASSIGNED:
            return _event(_CALLBACKS[fact.kind], fact, parts=fact.partitions)
        case c.CallbackEnded() if fact.kind is c.CallbackKind.ASSIGNED:
            return _event(Kind.ADDED, fact, parts=fact.partitions)
        case m.PollIntervalExceeded():
            return _event(Kind.POLL_EXPIRED, fact, limit=str(fact.limit_ms))
        case m.RequestRefused():
            kind = _REFUSALS.get(fact.error)
        case _:
            pass
    return None if kind is None else _event(kind, fact)


def _event(kind: Kind, fact: AnyFact, parts: tuple[object, ...] = (), limit: str = "") -> Event:
    generation = getattr(fact, "generation_id", -1)
    details = {"limit": limit} if limit else {}
    if parts:
        details["partitions"] = ", ".join(str(part) for part in parts)
    return Event(
        kind=kind,
        side=Side.CLIENT,
        place=Place("", 0),
        text=f"{type(fact).__name__} {details.get('partitions', '')}".strip(),
        maker="kohort",
        group=getattr(fact, "group_id", ""),
        member=getattr(fact, "member_id", ""),
        generation=generation if generation >= 0 else None,
        details=details,
    )
