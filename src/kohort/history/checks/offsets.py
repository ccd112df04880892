"""Promises about committed offsets: permitted commits, and the offsets that readers receive.

In: commits and fetches as a coordinator records them, or else as clients record them. Out:
findings. Must not know: callbacks, deliveries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.world import World
from kohort.model.client_facts import (
    CommitConcluded,
    CommitSent,
    CommittedAsked,
    CommittedTold,
    Outcome,
)
from kohort.model.errors import ErrorCode
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.wire_facts import (
    AnswerSent,
    CommitAsked,
    CommitTold,
    CoordinatorBooted,
    FetchAsked,
    FetchTold,
    GroupApi,
    PersistBegun,
    RequestReceived,
)

_Place = tuple[GroupId, TopicPartition]
_Call = tuple[str, int, int, GroupId]


_OF_THE_LOG: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""The answers to a commit with a failed write. The disk may have the records all the same, which a
crash shows."""


def _kept(fact: AnswerSent) -> list[TopicPartition]:
    """The partitions with offsets that the answer accepts."""
    if not isinstance(fact.body, CommitTold):
        return []
    return [tp for tp, error in fact.body.errors if error is ErrorCode.NONE]


class CommitsComeFromMembers(Check):
    """A commit is accepted from a member of the present generation, or into an empty group.

    Any other commit comes from a zombie. While a generation waits for its assignment no member may
    commit. During a join phase members of the old generation may still commit.
    """

    number, name, heading = 36, "commits-come-from-members", Heading.OFFSETS
    source, feature, kafka = "reliability 1.3 (36)", COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._doubtful: dict[_Call, str] = {}

    @on(RequestReceived)
    def asked(self, recorded: Recorded, fact: RequestReceived) -> None:
        """A commit arrives: note why it must not be accepted."""
        if not isinstance(fact.body, CommitAsked) or self.world.loading:
            return
        group = self.world.group(fact.group_id)
        if not group.known:
            return
        reason = ""
        if fact.generation_id < 0 and group.state is GroupState.EMPTY:
            pass
        elif fact.generation_id != group.generation_id:
            reason = f"generation {fact.generation_id} in generation {group.generation_id}"
        elif fact.member_id not in group.members:
            reason = "a sender that is no member"
        elif group.state is GroupState.COMPLETING_REBALANCE:
            reason = "a generation without its assignment"
        key = self.world.request_key(recorded, fact.token, fact.group_id)
        self._doubtful[key] = reason

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """The commit is answered: only a permitted one may be accepted."""
        key = self.world.request_key(recorded, fact.token, fact.group_id)
        reason = self._doubtful.pop(key, None)
        if reason is not None and _kept(fact):
            if not self.holds(not reason):
                self.find(
                    f"a commit of {fact.member_id or 'nobody'} was accepted from {reason}", recorded
                )


class NeverBackwardByOthers(Check):
    """Only the partition's present owner may lower its committed offset.

    The owner does so after a seek. A lower offset from another member is a stale commit, and
    processed records are read again.
    """

    number, name, heading = 37, "never-backward-by-others", Heading.OFFSETS
    source, feature, kafka = "reliability 1.3 (37)", COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last: dict[_Place, int] = {}
        self._asked: dict[_Call, tuple[RequestReceived, frozenset[TopicPartition] | None]] = {}

    @on(RequestReceived)
    def asked(self, recorded: Recorded, fact: RequestReceived) -> None:
        """A commit arrives: remember the partitions that its sender owns."""
        if not isinstance(fact.body, CommitAsked):
            return
        group = self.world.group(fact.group_id)
        targets = group.stable.targets if group.stable is not None else None
        owned = None if targets is None else targets.get(fact.member_id, frozenset())
        key = self.world.request_key(recorded, fact.token, fact.group_id)
        self._asked[key] = (fact, owned)

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """The commit was accepted: only an owner may lower an offset."""
        found = self._asked.pop(self.world.request_key(recorded, fact.token, fact.group_id), None)
        if found is None or not isinstance(found[0].body, CommitAsked):
            return
        request, owned = found
        kept = frozenset(_kept(fact))
        for tp, offset in found[0].body.offsets:
            if tp in kept:
                before = self._last.get((fact.group_id, tp), -1)
                self._last[fact.group_id, tp] = offset
                if before >= 0 and request.generation_id >= 0 and owned is not None:
                    if not self.holds(offset >= before or tp in owned):
                        self.find(
                            f"{tp} went back from {before} to {offset} by a member that does not "
                            "own it",
                            recorded,
                        )


@dataclass(slots=True, eq=False)
class _Commit:
    """One write to a partition's register: an offset, or None for a deleted offset."""

    value: int | None
    begun: int
    ended: int | None = None
    acknowledged: bool = False


@dataclass(slots=True)
class _Register:
    """The writes with a value that a reader may still see."""

    commits: list[_Commit] = field(default_factory=list)
    complete: bool = False
    """Values from before the first write of the history cannot be read any more."""

    def acknowledge(self, commit: _Commit, sequence: int) -> None:
        """A write is acknowledged; the writes that ended before it began are overwritten."""
        commit.ended, commit.acknowledged = sequence, True
        self.complete = True
        self.commits = [
            c for c in self.commits if c is commit or c.ended is None or c.ended > commit.begun
        ]


@dataclass(slots=True)
class _Fetch:
    """An unfinished read, with the values that each complete register had when it began."""

    begun: int
    seen: dict[TopicPartition, list[_Commit]]


class _Seen(NamedTuple):
    """The permitted values of a fetch."""

    values: set[int | None]
    acknowledged: bool
    """Whether a commit was acknowledged before the fetch."""


class Registers:
    """Every partition's committed offset as a register, with overlapping reads and writes.

    Two checks share them. The facts come from the coordinator, or from clients if no coordinator is
    recorded.
    """

    def __init__(self) -> None:
        self.registers: dict[_Place, _Register] = {}
        self._writes: dict[_Call, list[tuple[TopicPartition, _Commit]]] = {}
        self._reads: dict[_Call, _Fetch] = {}

    def begin_write(
        self,
        call: _Call,
        sequence: int,
        offsets: Iterable[tuple[TopicPartition, int | None]],
    ) -> None:
        """A commit or a deletion begins."""
        group_id = call[3]
        writes = [(tp, _Commit(value, sequence)) for tp, value in offsets]
        for tp, commit in writes:
            self.registers.setdefault((group_id, tp), _Register()).commits.append(commit)
        self._writes[call] = writes

    def written(self, call: _Call) -> frozenset[TopicPartition]:
        """The partitions of a write under way."""
        return frozenset(tp for tp, _ in self._writes.get(call, ()))

    def end_write(
        self,
        call: _Call,
        sequence: int,
        kept: frozenset[TopicPartition] | None,
        doubtful: frozenset[TopicPartition] = frozenset(),
    ) -> None:
        """A write is answered; ``kept`` is None if the result is unknown.

        The ``doubtful`` offsets were refused after a log failure: after a crash they may be stored.
        """
        for tp, commit in self._writes.pop(call, []):
            register = self.registers[call[3], tp]
            if kept is None:
                continue
            if tp in kept:
                register.acknowledge(commit, sequence)
            elif tp in doubtful:
                commit.ended = sequence  # the log refused the write, but may have stored it
            elif commit in register.commits:
                register.commits.remove(commit)

    def begin_read(
        self, call: _Call, sequence: int, partitions: Iterable[TopicPartition] | None
    ) -> None:
        """A fetch of these partitions begins; None means all partitions."""
        group_id = call[3]
        if partitions is None:
            partitions = [tp for g, tp in self.registers if g == group_id]
        mine = ((tp, self.registers.get((group_id, tp))) for tp in partitions)
        seen = {tp: list(r.commits) for tp, r in mine if r is not None and r.complete}
        self._reads[call] = _Fetch(sequence, seen)

    def allowed(self, call: _Call, tp: TopicPartition) -> _Seen | None:
        """The permitted values; None: any value, as the beginning of the fetch is not known."""
        fetch = self._reads.get(call)
        if fetch is None or tp not in fetch.seen:
            return None
        before = fetch.seen[tp]
        during = [
            c for c in self.registers[call[3], tp].commits if c.begun > fetch.begun or c in before
        ]
        values = {c.value for c in [*before, *during]}
        return _Seen(values, any(c.acknowledged and c.value is not None for c in before))

    def end_read(self, call: _Call) -> None:
        """A fetch is over."""
        self._reads.pop(call, None)

    def restart(self, sequence: int) -> None:
        """The coordinator restarted: requests without an answer are over."""
        for call in list(self._writes):
            for _, commit in self._writes.pop(call):
                commit.ended = sequence
        self._reads.clear()


class _Reads(Check):
    """Base of the two checks that judge fetches; it feeds the registers."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._all = Registers()

    def _told(
        self,
        recorded: Recorded,
        call: _Call,
        offsets: Iterable[tuple[TopicPartition, int | None]],
    ) -> None:
        """A fetch is answered: judge each value of which the permitted ones are known."""
        for tp, value in offsets:
            if (seen := self._all.allowed(call, tp)) is not None:
                self.told(recorded, (call[3], tp), value, seen)

    def told(self, recorded: Recorded, place: _Place, value: int | None, seen: _Seen) -> None:
        """A fetch returned a value; None if it returned no offset."""
        raise NotImplementedError

    @on(RequestReceived)
    def asked(self, recorded: Recorded, fact: RequestReceived) -> None:
        """The coordinator receives a commit or a fetch."""
        call = self.world.request_key(recorded, fact.token, fact.group_id)
        if isinstance(fact.body, CommitAsked):
            self._all.begin_write(call, recorded.sequence, fact.body.offsets)
        elif fact.api is GroupApi.OFFSET_FETCH:
            wanted = fact.body.partitions if isinstance(fact.body, FetchAsked) else None
            self._all.begin_read(call, recorded.sequence, wanted)

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """The coordinator answers."""
        call = self.world.request_key(recorded, fact.token, fact.group_id)
        if isinstance(fact.body, CommitTold):
            doubtful = frozenset(tp for tp, e in fact.body.errors if e in _OF_THE_LOG)
            self._all.end_write(call, recorded.sequence, frozenset(_kept(fact)), doubtful)
        elif isinstance(fact.body, FetchTold):
            self._told(recorded, call, fact.body.offsets)
        if fact.api is GroupApi.OFFSET_FETCH:
            self._all.end_read(call)

    @on(PersistBegun)
    def written(self, recorded: Recorded, fact: PersistBegun) -> None:
        """Tombstones: from now on these offsets may be missing."""
        gone = [(tp, value) for tp, value in fact.offsets if value is None]
        if gone:
            call = (f"tombstones {recorded.source}", recorded.incarnation, -1, fact.group_id)
            self._all.begin_write(call, recorded.sequence, gone)
            self._all.end_write(call, recorded.sequence, None)

    @on(CoordinatorBooted)
    def booted(self, recorded: Recorded, _fact: CoordinatorBooted) -> None:
        """Requests without an answer are over."""
        self._all.restart(recorded.sequence)

    @on(CommitSent, CommitConcluded, CommittedAsked, CommittedTold)
    def client(
        self,
        recorded: Recorded,
        fact: CommitSent | CommitConcluded | CommittedAsked | CommittedTold,
    ) -> None:
        """Facts of clients count only if no coordinator is recorded."""
        if self.world.coordinator_seen:
            return
        reads = isinstance(fact, CommittedAsked | CommittedTold)
        source = f"{recorded.source} {'reads' if reads else 'writes'}"
        call = (source, recorded.incarnation, fact.request, fact.group_id)
        if isinstance(fact, CommitSent):
            self._all.begin_write(call, recorded.sequence, fact.offsets)
        elif isinstance(fact, CommitConcluded):
            self._concluded(call, recorded, fact)
        elif isinstance(fact, CommittedAsked):
            self._all.begin_read(call, recorded.sequence, fact.partitions)
        else:
            if fact.outcome is Outcome.OK:
                self._told(recorded, call, fact.offsets)
            self._all.end_read(call)

    def _concluded(self, call: _Call, recorded: Recorded, fact: CommitConcluded) -> None:
        kept: frozenset[TopicPartition] | None = None
        if fact.outcome is Outcome.OK:
            kept = self._all.written(call) - frozenset(fact.refused)
        elif fact.outcome is Outcome.FAILED:
            kept = frozenset()
        self._all.end_write(call, recorded.sequence, kept)


class CommitsSurvive(_Reads):
    """A fetch that starts after a commit was acknowledged returns that commit or a later one.

    Each partition's offset is a register: a read may return any write that was not certainly
    overwritten before the read began. A write without an answer may have happened or not. The
    promise holds across crashes of the coordinator, too.
    """

    number, name, heading = 38, "commits-survive", Heading.OFFSETS
    source = "Jepsen on Kafka, Redpanda and Bufstream; reliability 1.3 (38)"
    feature, kafka = COORDINATOR, Kafka.YES

    def told(self, recorded: Recorded, place: _Place, value: int | None, seen: _Seen) -> None:
        """The fetched value must be a permitted one."""
        if not self.holds(value in seen.values):
            expected = " or ".join(sorted(map(str, seen.values)))
            self.find(f"{place[1]} was told as {value}, expected {expected}", recorded, place[0])


class NeverNoOffset(_Reads):
    """A fetch never returns "no offset" for a partition with an acknowledged commit.

    The client would fall back to ``auto.offset.reset`` and skip or repeat everything. One
    gateway acknowledged commits before it stored them and so lost over a quarter of its messages.
    """

    number, name, heading = 39, "never-no-offset", Heading.OFFSETS
    source = "seaweedfs Kafka gateway; Bufstream's spurious offsets; reliability 1.3 (39)"
    feature, kafka = COORDINATOR, Kafka.YES

    def told(self, recorded: Recorded, place: _Place, value: int | None, seen: _Seen) -> None:
        """The fetch must return an offset if a commit was acknowledged."""
        if seen.acknowledged:
            if not self.holds((value is not None and value >= 0) or None in seen.values):
                self.find(f"{place[1]} has a commit and was told as {value}", recorded, place[0])
