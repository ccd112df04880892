"""Promises about identity: member ids, instance ids, fencing, and static members.

In: a coordinator's facts. Out: findings. Must not know: clients' facts, time limits.
"""

from __future__ import annotations

from typing import Final

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.checks.generations import COORDINATOR
from kohort.history.world import World
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    GroupDeleted,
    MemberAdded,
    MemberAddedWithoutId,
    MemberIdHandedOut,
    MemberLeft,
    RebalanceStarted,
    StaticMemberReplaced,
    WriteFailed,
)
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, GroupId, GroupInstanceId, MemberId
from kohort.model.wire_facts import (
    AnswerSent,
    GroupApi,
    JoinAsked,
    LeaveAsked,
    RequestReceived,
    SyncTold,
)

STATIC: Final = "static membership"
_KIP_345: Final = "KIP-345; reliability 1.3"
_SHORT: Final = 8
"""An id with a last part shorter than this can be guessed."""

_OF_MEMBERS: Final = frozenset(
    {GroupApi.JOIN_GROUP, GroupApi.SYNC_GROUP, GroupApi.HEARTBEAT, GroupApi.OFFSET_COMMIT}
)


class RemovedStaysRemoved(Check):
    """An id that was removed from its group never gets a success again.

    Another member may own the partitions of this member now. The check judges requests that came
    after the removal. A commit that was accepted before the removal may be answered later.
    """

    number, name, heading = 10, "removed-stays-removed", Heading.MEMBERSHIP
    source, feature, kafka = "reliability 1.3 (10)", COORDINATOR, Kafka.YES

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """A request of a removed id is answered."""
        if fact.api not in _OF_MEMBERS or not fact.member_id:
            return
        removed = self.world.group(fact.group_id).removed.get(fact.member_id)
        if removed is None:
            return
        key = self.world.request_key(recorded, fact.token, fact.group_id)
        asked = self.world.requests.get(key)
        if asked is None or asked.at <= removed:
            return
        if not self.holds(fact.error is not ErrorCode.NONE):
            self.find(
                f"{fact.member_id} was removed, and its {fact.api} succeeded afterwards", recorded
            )


class MemberIdsAreUnique(Check):
    """Member ids are unique, cannot be guessed, and are never used again.

    A member identifies itself by its id alone. A client that guesses the id of another member can
    send its heartbeats and commits, and two clients with one id would be one member.
    """

    number, name, heading = 11, "member-ids-are-unique", Heading.MEMBERSHIP
    source, feature, kafka = "reliability 1.3 (11), 2.5", COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._given: set[tuple[GroupId, MemberId]] = set()

    @on(MemberIdHandedOut, MemberAddedWithoutId, StaticMemberReplaced)
    def given(
        self,
        recorded: Recorded,
        fact: MemberIdHandedOut | MemberAddedWithoutId | StaticMemberReplaced,
    ) -> None:
        """An id is made."""
        key = (fact.group_id, fact.member_id)
        if not self.holds(key not in self._given):
            self.find(f"the id {fact.member_id} was given before", recorded)
        self._given.add(key)
        if not self.holds(len(fact.member_id.rpartition("-")[2]) >= _SHORT):
            self.find(f"the id {fact.member_id} can be guessed", recorded)


class OneMemberPerInstance(Check):
    """At any instant at most one member of a group holds an instance id.

    Two holders would both process the partitions of the instance.
    """

    number, name, heading = 12, "one-member-per-instance", Heading.MEMBERSHIP
    source, feature, kafka = f"{_KIP_345} (12)", STATIC, Kafka.YES

    @on(MemberAdded)
    def added(self, recorded: Recorded, fact: MemberAdded) -> None:
        """A static member is added, not as the replacement of another."""
        if fact.group_instance_id is None:
            return
        holders = [
            m.member_id
            for m in self.world.group(fact.group_id).members.values()
            if m.group_instance_id == fact.group_instance_id and m.member_id != fact.member_id
        ]
        if not self.holds(not holders):
            self.find(f"instance {fact.group_instance_id} is held by {holders} already", recorded)


class ReplacedIsFenced(Check):
    """A member that lost its instance id to another process is fenced on every later call.

    This holds after a restart of the coordinator, too: the replacement must be durable before an
    answer reports it.
    """

    number, name, heading = 13, "replaced-is-fenced", Heading.MEMBERSHIP
    source = f"{_KIP_345} (13); Kafka's static_consumer_persisted_after_rejoin"
    feature, kafka = STATIC, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._fenced: dict[tuple[GroupId, MemberId], tuple[Recorded, GroupInstanceId]] = {}

    @on(StaticMemberReplaced)
    def replaced(self, recorded: Recorded, fact: StaticMemberReplaced) -> None:
        """Another member takes over an instance id."""
        key = (fact.group_id, fact.replaced_id)
        self._fenced[key] = (recorded, fact.group_instance_id)
        self._fenced.pop((fact.group_id, fact.member_id), None)

    @on(WriteFailed, GroupDeleted)
    def undone(self, _recorded: Recorded, fact: WriteFailed | GroupDeleted) -> None:
        """The replacement was not stored, or the group is gone: no member is fenced for it."""
        if isinstance(fact, GroupDeleted) or fact.purpose == "static member":
            for key in [key for key in self._fenced if key[0] == fact.group_id]:
                del self._fenced[key]

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """The former holder of the instance id gets an answer."""
        found = self._fenced.get((fact.group_id, fact.member_id))
        if found is None or fact.api not in _OF_MEMBERS or fact.group_instance_id != found[1]:
            return
        key = self.world.request_key(recorded, fact.token, fact.group_id)
        asked = self.world.requests.get(key)
        if asked is None or asked.sequence <= found[0].sequence:
            return
        holder = any(
            m.group_instance_id == found[1]
            for m in self.world.group(fact.group_id).members.values()
        )
        right = {ErrorCode.FENCED_INSTANCE_ID}
        if not holder:
            right.add(ErrorCode.UNKNOWN_MEMBER_ID)
        if not self.holds(fact.error in right):
            self.find(
                f"{fact.member_id} lost instance {fact.group_instance_id} and was answered "
                f"{fact.error.name} to {fact.api}",
                recorded,
            )


class StaticRejoinIsQuiet(Check):
    """A static member that comes back in Stable with the same offer disturbs nobody.

    The generation stays, the returning member gets the same assignment bytes, and no rebalance
    starts. This is the purpose of static membership.
    """

    number, name, heading = 14, "static-rejoin-is-quiet", Heading.MEMBERSHIP
    source, feature, kafka = f"{_KIP_345} (14); KAFKA-9801", STATIC, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._back: dict[MemberId, tuple[GroupId, GenerationId, bytes | None]] = {}
        self._just_back: tuple[GroupId, MemberId, int] | None = None

    @on(StaticMemberReplaced)
    def replaced(self, recorded: Recorded, fact: StaticMemberReplaced) -> None:
        """A static member comes back."""
        group = self.world.group(fact.group_id)
        request = self.world.request_in_hand
        offer = request.body if request is not None else None
        before = group.offers.get(fact.replaced_id)
        same = isinstance(offer, JoinAsked) and before is not None
        same = same and offer.protocols == before.protocols  # type: ignore[union-attr]
        if fact.state is GroupState.STABLE and same and group.stable is not None:
            bytes_before = group.stable.assignments.get(fact.replaced_id)
            self._back[fact.member_id] = (fact.group_id, fact.generation_id, bytes_before)
            self._just_back = (fact.group_id, fact.member_id, recorded.at)
            self.judged += 1

    @on(RebalanceStarted)
    def rebalanced(self, recorded: Recorded, fact: RebalanceStarted) -> None:
        """A rebalance starts: the return of the static member must not be its cause."""
        just = self._just_back
        if just is not None and just[0] == fact.group_id and just[2] == recorded.at:
            if not self.holds(just[1] not in fact.member_ids):
                self.find(
                    f"the return of static member {just[1]} started a rebalance",
                    recorded,
                    member_id=just[1],
                )
        for member_id in [m for m, kept in self._back.items() if kept[0] == fact.group_id]:
            del self._back[member_id]

    @on(AnswerSent)
    def answered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """A returning member is answered."""
        kept = self._back.get(fact.member_id)
        if kept is None or fact.error is not ErrorCode.NONE:
            return
        if fact.api is GroupApi.JOIN_GROUP:
            if not self.holds(fact.generation_id == kept[1]):
                self.find(
                    f"static member back in generation {fact.generation_id}, not {kept[1]}",
                    recorded,
                )
        elif isinstance(fact.body, SyncTold) and kept[2] is not None:
            if not self.holds(fact.body.assignment == kept[2]):
                self.find("a static member that came back was given another assignment", recorded)


class StaticMembersDoNotLeave(Check):
    """A static member does not leave when it closes; its session ends, or an operator removes it.

    An operator sends the instance id without a member id. A LeaveGroup at a close would start the
    rebalance that static membership must avoid.
    """

    number, name, heading = 15, "static-members-do-not-leave", Heading.MEMBERSHIP
    source, feature, kafka = (
        f"{_KIP_345} (15); KIP-1092 lets a client ask for it",
        STATIC,
        Kafka.YES,
    )

    @on(RequestReceived)
    def asked(self, recorded: Recorded, fact: RequestReceived) -> None:
        """A LeaveGroup that names static members."""
        if isinstance(fact.body, LeaveAsked):
            for member_id, instance in fact.body.members:
                if instance is not None:
                    if not self.holds(not member_id):
                        self.find(
                            f"static member {member_id} ({instance}) asks to leave",
                            recorded,
                            member_id=member_id,
                        )

    @on(MemberLeft)
    def left(self, recorded: Recorded, fact: MemberLeft) -> None:
        """A member that is static left without naming its instance id."""
        member = self.world.group(fact.group_id).members.get(fact.member_id)
        if member is not None and member.group_instance_id is not None:
            if not self.holds(fact.group_instance_id is not None):
                self.find(f"static member {fact.member_id} left as if it were dynamic", recorded)
