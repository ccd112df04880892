"""Promises about the log: durable before told, whole after a crash, silent after a failure.

In: writes, answers and boots as a coordinator records them. These promises
cannot be judged in a history without writes. Out: findings. Must not know: clients' facts.
"""

from __future__ import annotations

from typing import Final

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.coming_back import may_be_of
from kohort.history.world import World
from kohort.model.errors import ErrorCode
from kohort.model.facts import GroupDeleted, GroupLoaded, StaticMemberReplaced, WriteFailed
from kohort.model.history_record import Recorded
from kohort.model.ids import (
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    Ticket,
    TopicPartition,
)
from kohort.model.wire_facts import (
    AnswerSent,
    CommitAsked,
    CommitTold,
    CoordinatorBooted,
    FetchTold,
    GroupApi,
    PersistBegun,
    PersistFailed,
    PersistNotOnDisk,
    PersistOk,
    RequestReceived,
    SyncTold,
)

_WriteKey = tuple[str, int, Ticket]
_Place = tuple[GroupId, TopicPartition]
_Order = tuple[int, Ticket]
"""The order of the log: a coordinator's incarnation, and the ticket of the write."""

_FIRST: Final[_Order] = (-1, Ticket(-1))

_STORED_KEPT: Final = 16
"""The number of remembered offsets of one partition; at this number old ones are forgotten."""


class _Writes(Check):
    """Follows writes from their beginning to their end."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.begun: dict[_WriteKey, PersistBegun] = {}
        self.any_write = False

    @on(PersistBegun)
    def begin(self, recorded: Recorded, fact: PersistBegun) -> None:
        """A write has begun."""
        self.any_write = True
        self.begun[recorded.source, recorded.incarnation, fact.ticket] = fact

    @on(PersistOk)
    def stored(self, recorded: Recorded, fact: PersistOk) -> None:
        """The write is durable."""
        key = (recorded.source, recorded.incarnation, fact.ticket)
        write = self.begun.pop(key, None)
        if write is not None:
            self.durable(recorded, write)

    @on(PersistFailed)
    def lost(self, recorded: Recorded, fact: PersistFailed) -> None:
        """The write failed."""
        key = (recorded.source, recorded.incarnation, fact.ticket)
        write = self.begun.pop(key, None)
        if write is not None:
            self.failed(recorded, write)

    def durable(self, recorded: Recorded, write: PersistBegun) -> None:
        """A write is durable; a check may note this."""

    def failed(self, recorded: Recorded, write: PersistBegun) -> None:
        """A write failed; a check may note this."""


class DurableBeforeTold(_Writes):
    """No success is reported before its record is durable.

    That means: an assignment before its generation's record, a static replacement before the record
    that names the new id, a commit before its offsets. A crash between the two would revoke a
    promise on which a client relies already. In the lab the simulated disk, not the log, says which
    writes are durable.
    """

    number, name, heading = 45, "durable-before-told", Heading.DURABILITY
    source = "seaweedfs Kafka gateway; Bufstream; reliability 1.3 (45)"
    feature, kafka = COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._generations: set[tuple[GroupId, GenerationId]] = set()
        self._members: dict[GroupId, set[MemberId]] = {}
        self._offsets: dict[tuple[GroupId, TopicPartition], dict[int, int]] = {}
        """When each offset was stored last; only offsets that an open request may need."""
        self._replaced: set[tuple[GroupId, MemberId]] = set()

    def durable(self, recorded: Recorded, write: PersistBegun) -> None:
        """The write may be reported from now on."""
        if write.generation_id is not None:
            self._generations.add((write.group_id, write.generation_id))
            self._members[write.group_id] = {member_id for member_id, _ in write.members}
        for tp, offset in write.offsets:
            if offset is not None:
                stored = self._offsets.setdefault((write.group_id, tp), {})
                if len(stored) >= _STORED_KEPT:
                    self._forget(stored, recorded)
                stored[offset] = recorded.sequence

    def _forget(self, stored: dict[int, int], recorded: Recorded) -> None:
        """Forget offsets that were stored before the oldest open request came."""
        oldest = next(iter(self.world.requests.values()), recorded).sequence
        for offset in [offset for offset, when in stored.items() if when < oldest]:
            del stored[offset]

    @on(PersistNotOnDisk)
    def not_on_disk(self, recorded: Recorded, fact: PersistNotOnDisk) -> None:
        """The log reports a write that a power cut could still take back."""
        write = self.begun.pop((recorded.source, recorded.incarnation, fact.ticket), None)
        self.judged += 1
        self.find(
            f"write {fact.ticket} was reported as stored, but the disk has not synced it",
            recorded,
            write.group_id if write is not None else GroupId(""),
        )

    @on(GroupLoaded)
    def loaded(self, _recorded: Recorded, fact: GroupLoaded) -> None:
        """A generation from the log is durable."""
        self._generations.add((fact.group_id, fact.generation_id))

    @on(StaticMemberReplaced)
    def replaced(self, _recorded: Recorded, fact: StaticMemberReplaced) -> None:
        """A replacement, which must be durable before an answer reports it."""
        self._replaced.add((fact.group_id, fact.member_id))

    @on(AnswerSent)
    def told(self, recorded: Recorded, fact: AnswerSent) -> None:
        """An answer reports a success."""
        if not self.any_write:
            return
        group_id, generation_id = fact.group_id, fact.generation_id
        if isinstance(fact.body, SyncTold):
            kept = (group_id, generation_id) in self._generations
            if not self.holds(kept):
                self.find(
                    f"the assignment of generation {generation_id} was told, but not stored",
                    recorded,
                )
        elif isinstance(fact.body, CommitTold):
            self._commit(recorded, fact, fact.body)
        elif fact.api is GroupApi.JOIN_GROUP and fact.error is ErrorCode.NONE:
            replaced = (group_id, fact.member_id)
            if replaced in self._replaced:
                self._replaced.discard(replaced)
                stable = self.world.group(group_id).stable
                if stable is not None and stable.number == generation_id:
                    kept = fact.member_id in self._members.get(group_id, set())
                    if not self.holds(kept):
                        self.find(
                            f"static member {fact.member_id} was told, but not stored", recorded
                        )

    def _commit(self, recorded: Recorded, fact: AnswerSent, body: CommitTold) -> None:
        key = self.world.request_key(recorded, fact.token, fact.group_id)
        asked = self.world.requests.get(key)
        if asked is None or not isinstance(asked.fact, RequestReceived):
            return
        if not isinstance(asked.fact.body, CommitAsked):
            return
        wanted = dict(asked.fact.body.offsets)
        for tp, error in body.errors:
            if error is ErrorCode.NONE and tp in wanted:
                stored = self._offsets.get((fact.group_id, tp), {}).get(wanted[tp], -1)
                if not self.holds(stored > asked.sequence):
                    self.find(f"{tp} at {wanted[tp]} was acknowledged, but not stored", recorded)


class RecoveryIsReachable(Check):
    """After a crash the coordinator has a state that the log could have held.

    Each group has its last durable record, or a later record that was being written. No group has
    an older record or parts of two records, and no group is missing. Two recoveries from one log
    give the same state.
    """

    number, name, heading = 46, "recovery-is-reachable", Heading.DURABILITY
    source = "redpanda #3732; reliability 1.3 (46), 2.3"
    feature, kafka = COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._expected: dict[GroupId, list[PersistBegun]] = {}
        self._missing: set[GroupId] = set()
        self._booted: Recorded | None = None

    @on(CoordinatorBooted)
    def booted(self, recorded: Recorded, _fact: CoordinatorBooted) -> None:
        """Remember the records that the log may hold."""
        if not self.world.coordinator_seen:
            return
        self._expected = {group: list(w) for group, w in self.world.writes.items() if w}
        self._missing = {
            group
            for group, write in self.world.durable.items()
            if not any(w.group_deleted for w in self._expected.get(group, [write]))
        }
        self._booted = recorded

    @on(GroupLoaded)
    def loaded(self, recorded: Recorded, fact: GroupLoaded) -> None:
        """A group comes back."""
        self._missing.discard(fact.group_id)
        if self._booted is None:
            return
        found = self._expected.get(fact.group_id, [])
        if found:
            if not self.holds(any(may_be_of(write, fact) for write in found)):
                self.find(
                    f"came back in generation {fact.generation_id} with members "
                    f"{_named(fact.members or ())}; the log can hold "
                    + ", ".join(
                        f"generation {w.generation_id} with {_named(w.members)}"
                        for w in found
                        if w.generation_id is not None
                    ),
                    recorded,
                )

    @on(RequestReceived)
    def serving(self, recorded: Recorded, _fact: RequestReceived) -> None:
        """The coordinator serves requests: every group must be back."""
        if self._booted is not None:
            self._all_back(recorded)

    def finish(self, last: Recorded) -> None:
        """Judge at the end of the history, if the coordinator has served no request."""
        if self._booted is not None and not self.world.loading:
            self._all_back(last)

    def _all_back(self, recorded: Recorded) -> None:
        self._booted = None
        for group_id in sorted(self._missing):
            self.judged += 1
            self.find(f"group {group_id} was durable and did not come back", recorded, group_id)
        self._missing = set()
        self.judged += 1


def _named(members: tuple[tuple[MemberId, GroupInstanceId | None], ...]) -> str:
    names = [str(instance or member_id) for member_id, instance in members]
    return f"[{', '.join(names)}]"


class FailedIsNeverTold(_Writes):
    """After a failed write no answer reports its success, and no fetch returns its value.

    The next crash loses a value that is in memory and not on disk. A durable offset may be read
    although a later write of the same offset failed: a client repeats a commit without an answer.
    After a crash the log may hold failed and unfinished writes.
    """

    number, name, heading = 47, "failed-is-never-told", Heading.DURABILITY
    source, feature, kafka = "fsyncgate; reliability 1.3 (47), 2.4", COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._generations: set[tuple[GroupId, GenerationId]] = set()
        self._failed: dict[_Place, dict[int, _Order]] = {}
        self._held: dict[_Place, tuple[_Order, frozenset[int | None]]] = {}
        """The value of the last durable write; after a crash, all values that the log may hold."""
        self._from_empty = False
        """The history began with an empty log: an offset needs a durable write."""

    def failed(self, recorded: Recorded, write: PersistBegun) -> None:
        """The values of the write must not be reported."""
        if write.generation_id:
            self._generations.add((write.group_id, write.generation_id))
        self._note_failed(recorded.incarnation, write)
        self.judged += 1

    def _note_failed(self, incarnation: int, write: PersistBegun) -> None:
        for tp, offset in write.offsets:
            if offset is not None:
                failed = self._failed.setdefault((write.group_id, tp), {})
                failed[offset] = (incarnation, write.ticket)

    def durable(self, recorded: Recorded, write: PersistBegun) -> None:
        """Answers may report this generation and these offsets again."""
        if write.generation_id is not None:
            self._generations.discard((write.group_id, write.generation_id))
        order = (recorded.incarnation, write.ticket)
        for tp, offset in write.offsets:
            place = (write.group_id, tp)
            if offset is not None:
                self._failed.get(place, {}).pop(offset, None)
            held = self._held.get(place)
            if held is None or held[0] < order:
                self._held[place] = (order, frozenset([offset]))

    @on(CoordinatorBooted)
    def reread(self, recorded: Recorded, fact: CoordinatorBooted) -> None:
        """The content of the log counts now: a failed sync may have left its records there."""
        life = (recorded.source, recorded.incarnation)
        for key in [k for k in self.begun if k[0] == life[0] and k[1] < life[1]]:
            self._note_failed(key[1], self.begun.pop(key))
        for place, failed in self._failed.items():
            order, values = self._held.get(place, (_FIRST, frozenset([None])))
            behind = frozenset(offset for offset, when in failed.items() if when > order)
            if self._from_empty or place in self._held:
                self._held[place] = (order, values | behind)
        self._from_empty = self._from_empty or not fact.records
        self._generations.clear()
        self._failed.clear()

    @on(GroupDeleted)
    def deleted(self, _recorded: Recorded, fact: GroupDeleted) -> None:
        """A new group with this name begins without old generations."""
        self._generations = {key for key in self._generations if key[0] != fact.group_id}

    @on(WriteFailed)
    def created_anew(self, _recorded: Recorded, fact: WriteFailed) -> None:
        """The creation of a group failed; a later creation may use the same numbers."""
        if fact.purpose == "creation":
            self._generations = {key for key in self._generations if key[0] != fact.group_id}

    @on(AnswerSent)
    def told(self, recorded: Recorded, fact: AnswerSent) -> None:
        """An answer reports a success or a value."""
        if isinstance(fact.body, SyncTold) and self._generations:
            if not self.holds((fact.group_id, fact.generation_id) not in self._generations):
                self.find(
                    f"generation {fact.generation_id} was told although its write failed", recorded
                )
        elif isinstance(fact.body, FetchTold) and self._failed:
            wrong = [
                tp for tp, at in fact.body.offsets if self._only_failed((fact.group_id, tp), at)
            ]
            if not self.holds(not wrong):
                self.find(f"an offset of {wrong[0]} was told although its write failed", recorded)

    def _only_failed(self, place: _Place, offset: int | None) -> bool:
        """Whether the offset has a failed write only, and no durable one."""
        if offset not in self._failed.get(place, {}):
            return False
        held = self._held.get(place)
        return self._from_empty if held is None else offset not in held[1]
