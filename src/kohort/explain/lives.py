"""The lives of the members of one group: when each came, when and how each went.

In: events, records and times of one group, in the order of their times. Out: `Life` values, numbers
of members, sizes of topics, samples of times. Memory is bounded. Must not know: files, the lab.

Several sources may tell one change: the broker's log, the offsets topic, the member's own history.
The member id connects them. A line about the end (left, expired) tells more than a member that is
missing in the next record.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from kohort.explain.causes import Cause, reason_of
from kohort.explain.client_names import ClientNames
from kohort.explain.events import Event, Handed, Kind, Side, Timed
from kohort.explain.findings import tells_late_poll
from kohort.explain.lines.values import client_of
from kohort.explain.offsets_topic.generations import Committed, Settled
from kohort.explain.offsets_topic.server_groups import Bumped, Reconciled, ServerMember
from kohort.explain.partition_lists import partitions_in
from kohort.explain.told import Told

MOST_LIVES: Final = 20_000
MOST_SAMPLES: Final = 5_000
_ID_SECONDS: Final = 10.0
"""A client that got a member id joins with it within this time."""


class End(StrEnum):
    """The way in which a life ended, as the end of a sentence about a member."""

    LEFT = "left"
    EXPIRED = "expired"
    LATE = "exceeded its poll interval"
    REPLACED = "was replaced by the next process with its instance id"
    KILLED = "was killed"
    GONE = "was gone"


_PRECISION: Final = {End.GONE: 0, End.LEFT: 1, End.EXPIRED: 1, End.REPLACED: 1, End.LATE: 2}
"""An end with a higher number tells more than an end with a lower number."""


@dataclass(slots=True, kw_only=True)
class Life:
    """The time of one member id in the group. Times in seconds, None if not in the evidence."""

    member: str
    client: str = ""
    instance: str = ""
    came: float | None = None
    gone: float | None = None
    end: End | None = None
    joined: bool = False
    """Whether the member took part; a client may get a member id and never use it."""
    seen: float | None = None
    """The last sign of life: a delivery or a commit."""
    partitions: frozenset[str] = frozenset()


@dataclass(slots=True)
class Lives:
    """Follows one group."""

    lives: dict[str, Life] = field(default_factory=dict)
    counts: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=2_000))
    """Numbers of members in generations, with their times."""
    topics: dict[str, int] = field(default_factory=dict)
    """Partitions of each topic, as far as their numbers were seen."""
    protocols: Counter[str] = field(default_factory=Counter)
    last_protocol: str = ""
    sessions: Counter[float] = field(default_factory=Counter)
    rebalances: Counter[float] = field(default_factory=Counter)
    """Rebalance timeouts in seconds."""
    samples: defaultdict[str, list[tuple[float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Seconds and counts by the name of the work."""
    server_side: bool = False
    """Whether the group uses the new protocol (KIP-848)."""
    _owner: dict[str, str] = field(default_factory=dict)
    """Member id by partition."""
    _progress: dict[str, tuple[float, int]] = field(default_factory=dict)
    """The last commit of each partition: time and offset."""
    _recorded: bool = False
    """Whether there was a record of the group."""
    _names: ClientNames = field(default_factory=ClientNames)
    _sources: dict[str, str] = field(default_factory=dict)
    """Member id by client or container."""

    def feed(self, told: Told) -> None:
        """Take the next thing that a source tells about the group."""
        match told:
            case Settled():
                self._settled(told)
            case Committed():
                self._committed(told)
            case Handed():
                self._note_partition(told.partition)
                self._note_sign_of_life(self._sources.get(told.client, ""), told.at)
            case Timed():
                self._timed(told)
            case Bumped() | Reconciled():
                self.server_side = True
            case ServerMember():
                self._server_member(told)
            case Event() if told.side is Side.BROKER:
                self._broker(told)
            case Event() if told.side is Side.CLIENT:
                self._client(told)
            case Event():
                self._listed(told)

    def _timed(self, told: Timed) -> None:
        if told.name == "session":
            self.sessions[told.seconds] += 1
        else:
            self._sample(told.name, told.seconds, told.count)

    # -- records of the offsets topic -------------------------------------------------------------

    def _settled(self, record: Settled) -> None:
        self.protocols[record.protocol] += 1
        self.last_protocol = record.protocol or self.last_protocol
        known = {member.member for member in record.members}
        first = not self._recorded and record.generation > 1
        self._recorded = True
        for member in record.members:
            life = self._life(member.member)
            life.client = life.client or member.client
            life.instance = life.instance or member.instance
            life.joined = True
            if life.came is None and not first:
                life.came = record.at
            if member.session_s is not None:
                self.sessions[member.session_s] += 1
            if member.rebalance_s is not None:
                self.rebalances[member.rebalance_s] += 1
            life.partitions = frozenset(map(str, member.partitions))
            for partition in member.partitions:
                self._note_partition(str(partition))
                self._owner[str(partition)] = member.member
        for life in self.lives.values():
            # Logs are read before the offsets topic: a life may begin after this record.
            there = life.joined and life.gone is None and (life.came or 0.0) <= record.at
            if there and life.member not in known:
                replaced = life.instance and any(
                    m.instance == life.instance for m in record.members
                )
                self._end(life.member, record.at, End.REPLACED if replaced else End.GONE)
        if record.members:
            self.counts.append((record.at, len(record.members)))

    def _committed(self, commit: Committed) -> None:
        partition = str(commit.partition)
        self._note_partition(partition)
        before = self._progress.get(partition)
        self._progress[partition] = commit.at, commit.offset
        owner = self._owner.get(partition, "")
        if before is not None and commit.at > before[0] and commit.offset > before[1]:
            self._sample("commit", commit.at - before[0])
            rate = (commit.offset - before[1]) / (commit.at - before[0])
            self._sample("rate", rate)
        self._note_sign_of_life(owner, commit.at)

    def _server_member(self, told: ServerMember) -> None:
        self.server_side = True
        if told.gone:
            self._end(told.member, told.at, End.GONE)
            return
        life = self._life(told.member)
        life.client, life.instance = told.client or life.client, told.instance or life.instance
        life.came = told.at if life.came is None else life.came
        life.joined = True

    # -- lines of brokers, clients and tools ------------------------------------------------------

    def _broker(self, event: Event) -> None:
        at = event.at
        if at is None:
            return
        match event.kind:
            case Kind.PREPARING:
                self._prepared(event, at)
            case Kind.NEW_MEMBER | Kind.MEMBER_JOINS | Kind.STATIC_JOINS:
                self._came(event, at, joined=event.kind is not Kind.NEW_MEMBER)
            case Kind.STATIC_REPLACED:
                self._replaced(event, at)
            case Kind.LEFT | Kind.EXPIRED | Kind.PENDING_EXPIRED | Kind.REMOVED_LATE:
                self._went(event, at)
            case Kind.EPOCH | Kind.TARGET:
                self.server_side = True
            case Kind.RECONCILED:
                self.server_side = True
                self._came(event, at)
            case _:
                pass
        if event.kind in {Kind.STABILIZED, Kind.ASSIGNED} and event.members:
            self._stabilized(at, event.members)

    def _went(self, event: Event, at: float) -> None:
        match event.kind:
            case Kind.LEFT:
                self._left(event, at)
            case Kind.EXPIRED:
                self._end(event.member, at, End.EXPIRED, event.client, event.instance)
            case Kind.PENDING_EXPIRED:
                life = self.lives.get(event.member)
                if life is not None and not life.joined:
                    del self.lives[event.member]
            case _:
                for life in list(self.lives.values()):
                    if life.member in event.details.get("list", ""):
                        self._end(life.member, at, End.LATE)

    def _stabilized(self, at: float, members: int) -> None:
        self.counts.append((at, members))
        for life in self.lives.values():
            if life.gone is None and life.came is not None and life.came >= at - _ID_SECONDS:
                life.joined = True

    def _prepared(self, event: Event, at: float) -> None:
        told = reason_of(event.reason)
        if told.cause is Cause.NEW_MEMBER:
            life = self._life(told.member, at)
            life.instance, life.joined = told.instance or life.instance, True
        if told.cause is Cause.SECOND_ROUND:
            self.protocols["cooperative-sticky"] += 1

    def _came(self, event: Event, at: float, *, joined: bool = True) -> None:
        life = self._life(event.member, at)
        life.client, life.instance = event.client or life.client, event.instance or life.instance
        life.joined |= joined

    def _replaced(self, event: Event, at: float) -> None:
        old = event.details.get("old", "")
        if old:
            self._end(old, at, End.REPLACED, "", event.instance)
        if event.member and event.member != old:
            self._came(event, at)
        elif event.instance:  # Kafka since 3.0 tells no new member id here
            life = self._life(f"{event.instance} after {old}", at)
            life.instance, life.joined = event.instance, True

    def _left(self, event: Event, at: float) -> None:
        for name, found in (("session", self.sessions), ("timeout", self.rebalances)):
            if (text := event.details.get(name, "")).isdecimal():
                found[int(text) / 1_000] += 1
        late = tells_late_poll(event.reason)
        self._end(event.member, at, End.LATE if late else End.LEFT, event.client, event.instance)

    def _client(self, event: Event) -> None:
        at = event.at
        if at is None:
            return
        key = self._names.of(event)
        member = event.member or self._sources.get(key, "")
        for partition in partitions_in(event.details.get("partitions", "")):
            self._note_partition(partition)
        match event.kind:
            case Kind.JOINED | Kind.SYNCED if event.member:
                self._sources[key] = event.member
                life = self._life(event.member, at)
                life.joined = True
                life.client = life.client or event.client or event.source
                life.instance = life.instance or event.instance
            case Kind.POLL_EXPIRED:
                if (text := event.details.get("limit", "")).isdecimal():
                    self.rebalances[int(text) / 1_000] += 1
                self._end(member, at, End.LATE)
            case Kind.LEAVING:
                late = tells_late_poll(event.reason)
                self._end(member, at, End.LATE if late else End.LEFT)
            case Kind.PROCESS_ENDED:
                killed = event.text.startswith("ProcessKilled")
                self._end(member, at, End.KILLED if killed else End.LEFT)
            case _:
                pass
        self._note_sign_of_life(member, at)

    def _listed(self, event: Event) -> None:
        if partition := event.details.get("partition", ""):
            self._note_partition(partition)
        if event.member:
            life = self._life(event.member)
            life.client, life.joined = event.client or life.client, True
        if assignor := event.details.get("assignor", ""):
            self.protocols[assignor] += 1

    # -- what all sources have in common ----------------------------------------------------------

    def _life(self, member: str, came: float | None = None) -> Life:
        life = self.lives.get(member)
        if life is None:
            life = Life(member=member, client=client_of(member), came=came)
            if len(self.lives) < MOST_LIVES:
                self.lives[member] = life
        return life

    def _end(self, member: str, at: float, end: End, client: str = "", instance: str = "") -> None:
        if not member:
            return
        life = self._life(member)
        life.client, life.instance = client or life.client, instance or life.instance
        life.joined = True
        if life.end is None or _PRECISION.get(life.end, 3) < _PRECISION.get(end, 3):
            life.end = end
            life.gone = at if life.gone is None or end is not End.LATE else min(at, life.gone)

    def _note_sign_of_life(self, member: str, at: float) -> None:
        life = self.lives.get(member)
        if life is not None and life.gone is None:
            life.seen = at if life.seen is None else max(at, life.seen)

    def _note_partition(self, partition: str) -> None:
        topic, _, number = partition.rpartition("-")
        if not topic or not number.isdecimal():
            return
        count = int(number) + 1
        if count > self.topics.get(topic, 0):
            self.topics[topic] = count

    def _sample(self, name: str, seconds: float, count: int = 1) -> None:
        kept = self.samples[name]
        if len(kept) < MOST_SAMPLES:
            kept.append((seconds, count))
