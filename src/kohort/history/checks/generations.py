"""Promises about generations: their numbers, members, leaders, protocols and assignments.

In: a coordinator's facts. Out: findings. Must not know: clients' facts, offsets, time limits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.history.check import Check, Heading, Kafka, on
from kohort.history.world import World
from kohort.model.errors import ErrorCode
from kohort.model.facts import (
    GroupCreated,
    GroupDeleted,
    GroupEmptied,
    GroupLoaded,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberAdded,
    RebalanceStarted,
)
from kohort.model.group_state import GroupState
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId
from kohort.model.member_facts import GenerationJoined
from kohort.model.wire_facts import (
    AnswerSent,
    GroupApi,
    JoinTold,
    RequestReceived,
    SyncAsked,
    SyncTold,
)

COORDINATOR: Final = "classic coordinator"
_CLASSIC: Final = "Kafka's classic group protocol; reliability 1.3"
_Key = tuple[GroupId, GenerationId]


class GenerationRisesByOne(Check):
    """A completed join phase makes exactly the next generation.

    Fencing compares generations for equality, so a number that is skipped, repeated or lowered
    would let a member of one generation act as a member of another. A group that becomes empty
    completes a join phase, too, and gets the next number. A coordinator that restarts may skip
    numbers, since it cannot know which numbers clients received. It must not go back.
    """

    number, name, heading = 1, "generation-rises-by-one", Heading.MEMBERSHIP
    source, feature, kafka = _CLASSIC, COORDINATOR, Kafka.YES

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._came_back: set[GroupId] = set()

    @on(GroupLoaded)
    def came_back(self, _recorded: Recorded, fact: GroupLoaded) -> None:
        """The next generation may skip numbers, once."""
        self._came_back.add(fact.group_id)

    @on(JoinPhaseCompleted, GroupEmptied)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted | GroupEmptied) -> None:
        """A generation opens, or the group becomes empty."""
        group = self.world.group(fact.group_id)
        if not group.known or group.generation_id < 0:
            return
        next_one = group.generation_id + 1
        skips = fact.group_id in self._came_back and fact.generation_id > next_one
        self._came_back.discard(fact.group_id)
        if not self.holds(skips or fact.generation_id == next_one):
            self.find(f"generation {fact.generation_id} follows {group.generation_id}", recorded)


class ToldGenerationIsNeverReused(Check):
    """A generation number that a client was told never names another set of members.

    A client receives generation g, pauses, and comes back with g. If g then names other members,
    the client's heartbeats, syncs and commits are accepted in that generation. Kafka writes the
    generation only with the leader's sync: after a crash between join and sync Kafka uses the
    number again.
    """

    number, name, heading = 2, "told-generation-never-reused", Heading.MEMBERSHIP
    source = "reliability 1.3 (2); GroupMetadataManager of Kafka"
    feature, kafka = COORDINATOR, Kafka.NO

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._opened: dict[_Key, frozenset[MemberId]] = {}
        self._told: dict[_Key, frozenset[MemberId]] = {}

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """A generation opens."""
        key = (fact.group_id, fact.generation_id)
        members = frozenset(fact.member_ids)
        before = self._told.get(key)
        if not self.holds(before is None or before == members):
            self.find(
                f"generation {fact.generation_id} was told to {len(before or ())} members and is "
                f"used again with {len(members)}, of which {len(members - (before or members))} "
                "are others",
                recorded,
            )
        self._opened[key] = members

    @on(AnswerSent)
    def told(self, _recorded: Recorded, fact: AnswerSent) -> None:
        """A generation is told."""
        if fact.api is GroupApi.JOIN_GROUP and fact.error is ErrorCode.NONE:
            key = (fact.group_id, fact.generation_id)
            if key in self._opened:
                self._told.setdefault(key, self._opened[key])

    @on(GroupDeleted)
    def deleted(self, _recorded: Recorded, fact: GroupDeleted) -> None:
        """A group that is deleted in order may start over."""
        for table in (self._opened, self._told):
            for key in [key for key in table if key[0] == fact.group_id]:
                del table[key]


@dataclass(slots=True)
class _Told:
    """The content of the JoinGroup answers of one generation so far."""

    leaders: set[MemberId] = field(default_factory=set)
    facts: set[tuple[MemberId, str | None]] = field(default_factory=set)


class _ToldAlike(Check):
    """Follows the JoinGroup answers of each generation, for two checks."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._told: dict[tuple[int, GroupId, GenerationId], _Told] = {}

    def told_of(self, group_id: GroupId, generation_id: GenerationId) -> _Told:
        """The answers of this generation, since the coordinator started."""
        return self._told.setdefault((self.world.boots, group_id, generation_id), _Told())

    @on(GroupCreated)
    def created(self, _recorded: Recorded, fact: GroupCreated) -> None:
        """A group starts over: numbers may come again."""
        for key in [key for key in self._told if key[1] == fact.group_id]:
            del self._told[key]

    def now_called(self, group_id: GroupId, member_id: MemberId) -> MemberId:
        """The present id of a static member that an answer may name by its former one."""
        renamed = self.world.group(group_id).renamed
        seen = 0
        while member_id in renamed and seen < len(renamed):
            member_id, seen = renamed[member_id], seen + 1
        return member_id


class OneLeaderPerGeneration(_ToldAlike):
    """A generation has one leader, which is one of its members; it alone gets the member list.

    Two leaders would make two assignments; a leader outside the generation would make none. The
    list has the metadata of all members, and an assignment from a wrong list is wrong. Only a
    member that was removed while the answer waited for the log may be missing.
    """

    number, name, heading = 3, "one-leader-per-generation", Heading.MEMBERSHIP
    source, feature, kafka = _CLASSIC, COORDINATOR, Kafka.YES

    @on(AnswerSent)
    def joined(self, recorded: Recorded, fact: AnswerSent) -> None:
        """A member receives its generation."""
        if fact.api is not GroupApi.JOIN_GROUP or not isinstance(fact.body, JoinTold):
            return
        told = self.told_of(fact.group_id, fact.generation_id)
        known = [*sorted(told.leaders), fact.body.leader_id]
        told.leaders = {self.now_called(fact.group_id, leader) for leader in known}
        self._judge(recorded, fact, fact.body, told)

    def _judge(self, recorded: Recorded, fact: AnswerSent, body: JoinTold, told: _Told) -> None:
        leads = body.leader_id == fact.member_id
        if not self.holds(len(told.leaders) == 1):
            self.find(f"generation {fact.generation_id} has several leaders", recorded)
        if not self.holds(leads or not body.members):
            self.find(f"{fact.member_id} got the member list but does not lead", recorded)
        group = self.world.group(fact.group_id)
        generation = group.generation
        if generation is None or generation.number != fact.generation_id:
            return
        members = set(generation.member_ids)
        leader = self.now_called(fact.group_id, body.leader_id)
        if not self.holds(leader in members):
            self.find(f"leader {body.leader_id} is no member of the generation", recorded)
        if leads and body.members:
            listed = {self.now_called(fact.group_id, m) for m, _ in body.members}
            gone = members & group.removed.keys()
            right = members - gone <= listed <= members
            if not self.holds(right):
                self.find("the leader's list is not the generation's members", recorded)


class AllAreToldTheSame(_ToldAlike):
    """All members of a generation are told the same leader and the same protocol.

    Members decide by the protocol whether they may keep what they own, and by the leader whether
    they assign. Members with different answers act on two generations with one number. The facts of
    clients alone show this, too: two members joined one generation under different protocols.
    """

    number, name, heading = 4, "all-are-told-the-same", Heading.MEMBERSHIP
    source, feature, kafka = _CLASSIC, COORDINATOR, Kafka.YES

    @on(AnswerSent)
    def joined(self, recorded: Recorded, fact: AnswerSent) -> None:
        """The coordinator answers a JoinGroup."""
        if fact.api is GroupApi.JOIN_GROUP and isinstance(fact.body, JoinTold):
            leader = self.now_called(fact.group_id, fact.body.leader_id)
            self._judge(recorded, fact, (leader, fact.body.protocol_name))

    @on(GenerationJoined)
    def synced(self, recorded: Recorded, fact: GenerationJoined) -> None:
        """A member joined; its fact counts only if no coordinator is recorded."""
        if not self.world.coordinator_seen:
            self._judge(recorded, fact, (MemberId(""), fact.protocol_name))

    def _judge(
        self,
        recorded: Recorded,
        fact: AnswerSent | GenerationJoined,
        said: tuple[MemberId, str | None],
    ) -> None:
        told = self.told_of(fact.group_id, fact.generation_id)
        told.facts = {
            (self.now_called(fact.group_id, leader), protocol) for leader, protocol in told.facts
        } | {said}
        if not self.holds(len(told.facts) == 1):
            self.find(
                f"generation {fact.generation_id} was told as {sorted(map(str, told.facts))}",
                recorded,
            )


class ProtocolIsSupportedByAll(Check):
    """The protocol of a generation is one that every member of it offered.

    A member that does not know the protocol can neither read its assignment nor make one.
    """

    number, name, heading = 5, "protocol-supported-by-all", Heading.MEMBERSHIP
    source, feature, kafka = _CLASSIC, COORDINATOR, Kafka.YES

    @on(JoinPhaseCompleted)
    def opened(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """A protocol was chosen."""
        group = self.world.group(fact.group_id)
        for member_id in fact.member_ids:
            offer = group.offers.get(member_id)
            if offer is not None:
                names = [name for name, _ in offer.protocols]
                if not self.holds(fact.protocol_name in names):
                    self.find(
                        f"{fact.protocol_name} was chosen, but {member_id} offers {names}",
                        recorded,
                        member_id=member_id,
                    )


class _Payloads(Check):
    """Follows the assignments that members send for the present generation of each group."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._of_leader: dict[GroupId, list[dict[MemberId, bytes]]] = {}
        self._of_others: dict[GroupId, list[dict[MemberId, bytes]]] = {}

    @on(JoinPhaseCompleted)
    def opened(self, _recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """A new generation: earlier payloads are void."""
        self._of_leader[fact.group_id] = []
        self._of_others[fact.group_id] = []

    @on(RequestReceived)
    def asked(self, _recorded: Recorded, fact: RequestReceived) -> None:
        """A SyncGroup of the present generation, with or without a payload."""
        generation = self.world.group(fact.group_id).generation
        if not isinstance(fact.body, SyncAsked) or generation is None:
            return
        if generation.number != fact.generation_id or fact.group_id not in self._of_leader:
            return
        payload = dict(fact.body.assignments)
        if fact.member_id == generation.leader_id:
            self._of_leader[fact.group_id].append(payload)
        elif payload:
            self._of_others[fact.group_id].append(payload)

    @staticmethod
    def made_from(fact: GroupStabilized, payloads: list[dict[MemberId, bytes]]) -> bool:
        """Whether the generation's assignments are one of these payloads."""
        return any(all(p.get(m, b"") == data for m, data in fact.assignments) for p in payloads)


class OnePayloadPerGeneration(_Payloads):
    """The assignments of a generation come from one SyncGroup of the leader.

    A generation put together from two payloads may give a partition to two members or to none. Each
    member gets its own bytes, or no bytes if the leader left it out.
    """

    number, name, heading = 6, "one-payload-per-generation", Heading.MEMBERSHIP
    source = "KAFKA-9801; reliability 1.3 (6)"
    feature, kafka = COORDINATOR, Kafka.YES

    @on(GroupStabilized)
    def stabilized(self, recorded: Recorded, fact: GroupStabilized) -> None:
        """The assignment of a generation is the one that its leader sent."""
        if fact.group_id in self._of_leader:
            if not self.holds(self.made_from(fact, self._of_leader[fact.group_id])):
                self.find(
                    f"generation {fact.generation_id} has an assignment its leader never sent",
                    recorded,
                )

    @on(AnswerSent)
    def delivered(self, recorded: Recorded, fact: AnswerSent) -> None:
        """A member gets its own part of the assignment."""
        stable = self.world.group(fact.group_id).stable
        if not isinstance(fact.body, SyncTold) or stable is None:
            return
        if stable.number == fact.generation_id and stable.assignments:
            expected = stable.assignments.get(fact.member_id)
            if expected is None and self.world.boots > 1:
                return  # the log kept a replacement, although the write was reported as failed
            if not self.holds(fact.body.assignment == expected):
                self.find(
                    f"{fact.member_id} was given {len(fact.body.assignment)} bytes that are "
                    f"not its assignment in generation {fact.generation_id}",
                    recorded,
                )


class FollowersAssignNothing(_Payloads):
    """An assignment has no effect if its sender is not the leader.

    A member that led an older generation, or believes to lead this one, must not decide for others.
    """

    number, name, heading = 7, "followers-assign-nothing", Heading.MEMBERSHIP
    source, feature, kafka = _CLASSIC, COORDINATOR, Kafka.YES

    @on(GroupStabilized)
    def stabilized(self, recorded: Recorded, fact: GroupStabilized) -> None:
        """If a follower also sent an assignment, the group must not use it."""
        others = self._of_others.get(fact.group_id, [])
        if others:
            leaders = self._of_leader[fact.group_id]
            if not self.holds(self.made_from(fact, leaders) or not self.made_from(fact, others)):
                self.find(
                    f"generation {fact.generation_id} is assigned as a follower sent it", recorded
                )


_MAY_BEGIN: Final = frozenset(
    {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}
)


class LegalTransitions(Check):
    """A group goes from Empty through PreparingRebalance and CompletingRebalance to Stable.

    From CompletingRebalance and Stable it goes back to PreparingRebalance. A join phase may end in
    Empty, and an Empty group may become Dead. Members act by the state: a group that is Stable
    without a sync phase has no assignment to act on.
    """

    number, name, heading = 8, "legal-transitions", Heading.MEMBERSHIP
    source, feature, kafka = _CLASSIC, COORDINATOR, Kafka.YES

    def _judge(self, recorded: Recorded, group_id: GroupId, to: str, *allowed: GroupState) -> None:
        group = self.world.group(group_id)
        if group.known:
            if not self.holds(group.state in allowed):
                self.find(f"the group goes from {group.state} to {to}", recorded, group_id)

    @on(RebalanceStarted)
    def preparing(self, recorded: Recorded, fact: RebalanceStarted) -> None:
        """To PreparingRebalance, from the state that the fact itself names."""
        self._judge(recorded, fact.group_id, "PreparingRebalance", *sorted(_MAY_BEGIN))
        self._judge(recorded, fact.group_id, "PreparingRebalance", fact.previous_state)

    @on(JoinPhaseCompleted)
    def completing(self, recorded: Recorded, fact: JoinPhaseCompleted) -> None:
        """To CompletingRebalance."""
        self._judge(recorded, fact.group_id, "CompletingRebalance", GroupState.PREPARING_REBALANCE)

    @on(GroupStabilized)
    def stable(self, recorded: Recorded, fact: GroupStabilized) -> None:
        """To Stable."""
        self._judge(recorded, fact.group_id, "Stable", GroupState.COMPLETING_REBALANCE)

    @on(GroupEmptied)
    def emptied(self, recorded: Recorded, fact: GroupEmptied) -> None:
        """To Empty."""
        self._judge(recorded, fact.group_id, "Empty", GroupState.PREPARING_REBALANCE)

    @on(GroupDeleted)
    def dead(self, recorded: Recorded, fact: GroupDeleted) -> None:
        """To Dead."""
        self._judge(recorded, fact.group_id, "Dead", GroupState.EMPTY, GroupState.DEAD)

    @on(MemberAdded)
    def joined(self, recorded: Recorded, fact: MemberAdded) -> None:
        """Nobody joins a dead group."""
        alive = [state for state in GroupState if state is not GroupState.DEAD]
        self._judge(recorded, fact.group_id, "a group with a new member", *alive)
