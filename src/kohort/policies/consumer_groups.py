"""Translates between the embedded ``consumer`` protocol and the assignors.

In: a consumer's subscription, or the offers of all members. Out: the bytes that a consumer offers
when it joins, or a group spec and the encoded plan. Must not know: requests, the source of
partition counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from kohort.embedded.consumer import (
    Assignment,
    LeadersNote,
    Subscription,
    SubscriptionReader,
    decode_assignment,
    decode_sticky_userdata,
    encode_assignment,
    encode_sticky_userdata,
    encode_subscription,
    generation_in_userdata,
)
from kohort.embedded.deferral import (
    NO_ECHO,
    PARTITIONS,
    Echo,
    Pending,
    announced_in,
    encode_echo,
    encode_pending,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import (
    NO_GENERATION,
    GenerationId,
    MemberId,
    ProtocolName,
    TopicPartition,
)
from kohort.model.instants import Millis
from kohort.model.join import JoinedMember, JoinProtocol
from kohort.model.partition_set import PartitionSet
from kohort.policies.deferred import DeferredPlan, Resolution, deferred_plan
from kohort.policies.handover import sentences
from kohort.policies.losses import Moment, read_echoes, too_long
from kohort.policies.record_size import BROKERS_RECORD_LIMIT, check_record, record_bytes
from kohort.policies.registry import assignor
from kohort.policies.spec import (
    Assignor,
    EncodedPlan,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    Plan,
    Say,
    say_nothing,
)
from kohort.policies.sticky import COOPERATIVE, sticky_plan

DESIGN_ONE = Resolution()
"""Nothing waits, and all moves are made in one round."""

_MOST_RECORD_BYTES = 900_000
"""With userdata about waits; lower than the broker's limit, because the estimate is rough."""

_NO_TOPICS = Subscription(topics=frozenset())
_SMALLER_GROUP = (
    "Use fewer members or topics in the group, or the assignor range, with which members send no "
    "owned partitions"
)


def join_protocols(
    assignors: Sequence[Assignor],
    topics: Collection[str],
    *,
    owned: Collection[TopicPartition] = (),
    previous: Collection[TopicPartition] = (),
    generation_id: GenerationId = NO_GENERATION,
    rack_id: str | None = None,
    echo: Echo = NO_ECHO,
) -> tuple[JoinProtocol, ...]:
    """The protocols that a consumer offers in JoinGroup: one for each assignor, best first.

    Args:
        assignors: as configured.
        topics: the subscription.
        owned: partitions that the consumer keeps while it joins; empty under an eager protocol.
        previous: the last assignment, which the eager sticky assignor wants back; ``owned`` need
            not be repeated here.
        generation_id: the generation that assigned ``owned`` and ``previous``; -1 without one.
        rack_id: client.rack.
        echo: for a leader of kohort: the pending work in the last assignment, with the time that
            is left now; the member's identity; a drain.
    """
    return tuple(
        JoinProtocol(
            each.name,
            encode_subscription(
                Subscription(
                    topics=frozenset(topics),
                    user_data=_user_data(each, {*owned, *previous}, generation_id, echo),
                    owned=PartitionSet.of(owned),
                    generation_id=generation_id,
                    rack_id=rack_id,
                )
            ),
        )
        for each in assignors
    )


def _user_data(
    each: Assignor,
    previous: Collection[TopicPartition],
    generation_id: GenerationId,
    echo: Echo,
) -> bytes | None:
    if each.name == "sticky":
        return encode_sticky_userdata(previous, generation_id)
    if each.name == COOPERATIVE.name:
        return encode_echo(generation_id, echo)
    return None


class ConsumerAssigner:
    """Decides for consumer groups: subscriptions in, assignments out.

    A member with unreadable bytes gets an empty assignment, and the group continues without it.

    Args:
        resolution: waits and limits under ``cooperative-sticky``; the default is Design I.
        say: takes a sentence about a wait or a move, for the log of the leader's process.
        warn: takes a sentence about a fault: of a member's bytes, of the application, of the
            record's size.
        most_record_bytes: the broker's limit for the group's record; 0 for no check.
    """

    words = PARTITIONS

    def __init__(
        self,
        resolution: Resolution = DESIGN_ONE,
        say: Say = say_nothing,
        warn: Say = say_nothing,
        *,
        most_record_bytes: int = BROKERS_RECORD_LIMIT,
    ) -> None:
        self._resolution = resolution
        self._say = say
        self._warn = warn
        self._most_record_bytes = most_record_bytes

    def topics(self, metadata: Sequence[bytes]) -> frozenset[str]:
        """All topics that any member wants."""
        reader = SubscriptionReader()
        return frozenset().union(*{_subscription(data, reader).topics for data in metadata})

    def spec(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
    ) -> GroupSpec:
        """The group, as the members offer it."""
        return group_spec(protocol_name, members, partitions, self._warn)

    def resolution(self, spec: GroupSpec) -> Resolution:
        """Waits and limits for this group."""
        del spec
        return self._resolution

    def balanced(self, spec: GroupSpec) -> GroupAssignment:
        """The plan of ``cooperative-sticky``, also for partitions that other members hold."""
        return sticky_plan(spec)

    def plan_at_once(self, protocol_name: ProtocolName, spec: GroupSpec) -> Plan:
        """The plan if nothing waits and no move is postponed."""
        return assignor(protocol_name).assign(spec)

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        partitions: Mapping[str, int],
        moment: Moment | None = None,
    ) -> EncodedPlan:
        """An assignment for every member; it may be empty.

        Without a ``moment`` nothing waits and no move is postponed.

        Raises:
            ConfigError: the protocol name is no assignor's, or the group or its record is too
                large.
        """
        spec = self.spec(protocol_name, members, partitions)
        if moment is not None:
            spec = replace(spec, racks=moment.racks)
        memory = None
        cooperative = protocol_name == COOPERATIVE.name
        if moment is None or not cooperative or self._at_once(spec, moment):
            plan = self.plan_at_once(protocol_name, spec)
        else:
            deferred = self._deferred(spec, moment)
            plan = Plan(deferred.partitions, _user_data_of(spec, deferred), deferred.again)
            memory = deferred.memory
        assignments = in_bytes(plan, members)
        check_record(members, assignments, self._most_record_bytes, _SMALLER_GROUP, self._warn)
        racks = spec.racks if spec.racks_that_count() else {}
        return EncodedPlan(assignments, plan.again, memory, racks)

    def _at_once(self, spec: GroupSpec, moment: Moment) -> bool:
        """Whether nothing waits, no move is postponed, and nobody drains; logs wrong echoes."""
        if not self._resolution.in_one_step:
            return False
        echoes, damaged = read_echoes(spec)
        if any(echo.draining for echo in echoes.values()):
            return False
        self._tell(moment, self._warn, [*damaged, *too_long(echoes, Millis(0), Millis(0))])
        return True

    def pending(self, assignment: bytes) -> Pending:
        """The pending work in an assignment; `NOTHING` for damaged bytes."""
        return announced_in([assignment])

    def _deferred(self, spec: GroupSpec, moment: Moment) -> DeferredPlan:
        """The plan; nothing waits if the group's record would be too large with the userdata."""
        resolution = self.resolution(spec)
        plan = deferred_plan(spec, moment, resolution, self.balanced)
        # Each member's assignment has the userdata, and later each member's subscription.
        added = 2 * sum(map(len, _user_data_of(spec, plan).values()))
        partitions = sum(map(len, plan.partitions.values()))
        if added and spec.record_bytes + 4 * partitions + added > _MOST_RECORD_BYTES:
            too_large = (
                "no partition waits for its old owner or its new one, because userdata of "
                f"{added} bytes would make the group's record too large"
            )
            self._tell(moment, self._warn, [too_large])
            at_once = replace(resolution, most_wait_ms=Millis(0), stateful=frozenset[str]())
            plan = deferred_plan(spec, moment, at_once, self.balanced)
        told = sentences(plan.handovers, self.words)
        self._tell(moment, self._warn, plan.faults)
        self._tell(moment, self._say, (*plan.notes, *told, *plan.pending.sentences(self.words)))
        return plan

    def _tell(self, moment: Moment, say: Say, sentences: Iterable[str]) -> None:
        for sentence in sentences:
            say(f"generation {moment.generation_id}: {sentence}")

    def withheld(
        self,
        protocol_name: ProtocolName,
        members: Sequence[JoinedMember],
        plan: Mapping[MemberId, bytes],
        partitions: Mapping[str, int],
    ) -> dict[MemberId, int]:
        """For each member, the number of its partitions that the plan assigns to nobody, if any.

        The member must give up these partitions and join again before others can get them.
        """
        given = {tp for data in plan.values() for tp in decode_assignment(data).partitions}
        if len(given) == sum(partitions.values()):
            return {}
        held = {}
        reader = SubscriptionReader()
        for member in members:
            owned = _member_spec(protocol_name, member, reader).owned
            free = [p for p in owned if p.partition < partitions.get(p.topic, 0) and p not in given]
            if free:
                held[member.member_id] = len(free)
        return held

    def noted(self, assignment: bytes, note: LeadersNote) -> bytes:
        """A static member's assignment with a note from its leader."""
        return encode_assignment(replace(decode_assignment(assignment), note=note))

    def note(self, assignment: bytes) -> LeadersNote | None:
        """The note in an assignment; None if there is none."""
        try:
            return decode_assignment(assignment).note
        except ProtocolError:
            return None


def _user_data_of(spec: GroupSpec, plan: DeferredPlan) -> dict[MemberId, bytes]:
    """The userdata of each member's assignment; none if nothing is pending."""
    common = encode_pending(plan.pending)
    found = {} if common is None else dict.fromkeys(spec.members, common)
    for member_id in plan.handovers.keys() | plan.standbys.keys():
        found[member_id] = encode_pending(plan.pending_of(member_id)) or b""
    return found


def in_bytes(plan: Plan, members: Sequence[JoinedMember]) -> dict[MemberId, bytes]:
    """The assignment of each member."""
    return {
        member.member_id: encode_assignment(
            Assignment(
                partitions=PartitionSet.of(plan.partitions.get(member.member_id, ())),
                user_data=plan.user_data.get(member.member_id),
            )
        )
        for member in members
    }


def group_spec(
    protocol_name: ProtocolName,
    members: Sequence[JoinedMember],
    partitions: Mapping[str, int],
    warn: Say = say_nothing,
) -> GroupSpec:
    """The subscriptions that the members offered under the chosen name, as a spec.

    Args:
        protocol_name: the name that the coordinator chose.
        members: with their subscriptions.
        partitions: the number of partitions of each topic.
        warn: takes a sentence about each subscription that cannot be read.
    """
    reader = SubscriptionReader()
    return GroupSpec(
        members={m.member_id: _member_spec(protocol_name, m, reader, warn) for m in members},
        partitions=dict(partitions),
        record_bytes=record_bytes(members),
    )


def _member_spec(
    protocol_name: ProtocolName,
    member: JoinedMember,
    reader: SubscriptionReader,
    warn: Say = say_nothing,
) -> MemberSpec:
    try:
        subscription = reader.read(member.metadata)
    except ProtocolError as error:
        warn(f"member {member.member_id} gets nothing: its subscription cannot be read: {error}")
        subscription = _NO_TOPICS
    owned, generation_id = subscription.owned, subscription.generation_id
    if protocol_name == "sticky":
        # Eager members own nothing when they join; their userdata names the last assignment.
        owned, generation_id = decode_sticky_userdata(subscription.user_data) or (
            frozenset[TopicPartition](),
            NO_GENERATION,
        )
    elif generation_id == NO_GENERATION:
        generation_id = generation_in_userdata(subscription.user_data)
    return MemberSpec(
        topics=subscription.topics,
        owned=owned,
        generation_id=generation_id,
        group_instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        user_data=subscription.user_data,
    )


def _subscription(metadata: bytes, reader: SubscriptionReader) -> Subscription:
    try:
        return reader.read(metadata)
    except ProtocolError:
        return _NO_TOPICS
