"""Consumers' bytes to a group spec, and a plan back to bytes.

Here: the bridge between the embedded ``consumer`` protocol and the assignors, in both directions:
what a consumer offers when it joins, and what its leader makes of everybody's offers. Must not
know: requests, who asks, where partition counts come from.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from kohort.embedded.base import JoinProtocol
from kohort.embedded.consumer import (
    Assignment,
    LeadersNote,
    Subscription,
    decode_assignment,
    decode_sticky_userdata,
    decode_subscription,
    encode_assignment,
    encode_generation_userdata,
    encode_note,
    encode_sticky_userdata,
    encode_subscription,
    generation_in_userdata,
    note_in_userdata,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import (
    NO_GENERATION,
    GenerationId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    TopicPartition,
)
from kohort.policies.registry import assignor
from kohort.policies.spec import Assignor, GroupSpec, MemberSpec


class OfferedMember(Protocol):
    """A member as the leader hears of it; ``member.events.GroupMember`` fits."""

    @property
    def member_id(self) -> MemberId:
        """Its id."""
        ...

    @property
    def group_instance_id(self) -> GroupInstanceId | None:
        """Its instance id, if static."""
        ...

    @property
    def metadata(self) -> bytes:
        """What it offered under the chosen name."""
        ...


def join_protocols(
    assignors: Sequence[Assignor],
    topics: Collection[str],
    *,
    owned: Collection[TopicPartition] = (),
    previous: Collection[TopicPartition] = (),
    generation_id: GenerationId = NO_GENERATION,
    rack_id: str | None = None,
) -> tuple[JoinProtocol, ...]:
    """What a consumer offers in JoinGroup, one entry an assignor, best first.

    Args:
        assignors: as configured.
        topics: the subscription.
        owned: partitions that are kept while joining (empty for who gave up everything).
        previous: the last assignment, which the eager sticky assignor wants back; ``owned`` is
            part of it anyhow.
        generation_id: the generation whose assignment ``owned`` and ``previous`` are; -1 without.
        rack_id: client.rack.
    """
    return tuple(
        JoinProtocol(
            each.name,
            encode_subscription(
                Subscription(
                    topics=frozenset(topics),
                    user_data=_user_data(each, {*owned, *previous}, generation_id),
                    owned=frozenset(owned),
                    generation_id=generation_id,
                    rack_id=rack_id,
                )
            ),
        )
        for each in assignors
    )


def _user_data(
    each: Assignor, previous: Collection[TopicPartition], generation_id: GenerationId
) -> bytes | None:
    if each.name == "sticky":
        return encode_sticky_userdata(previous, generation_id)
    if each.name == "cooperative-sticky":
        # Java's leaders read the generation here from members whose Subscription lacks it.
        return encode_generation_userdata(generation_id)
    return None


class ConsumerAssigner:
    """Decides for consumer groups: subscriptions in, assignments out.

    A member whose bytes are no subscription is treated as one that wants nothing: its group goes on
    without it (and it learns so from its empty assignment).
    """

    def topics(self, protocol_name: ProtocolName, metadata: Sequence[bytes]) -> frozenset[str]:
        """All topics that any member wants."""
        del protocol_name
        return frozenset().union(*(_subscription(data).topics for data in metadata))

    def assign(
        self,
        protocol_name: ProtocolName,
        members: Sequence[OfferedMember],
        partitions: Mapping[str, int],
    ) -> dict[MemberId, bytes]:
        """An assignment for every member, if need be with nothing in it.

        Raises:
            ConfigError: the protocol name is no assignor's, or the group is too large.
        """
        spec = group_spec(protocol_name, members, partitions)
        plan = assignor(protocol_name).assign(spec)
        return {
            member.member_id: encode_assignment(
                Assignment(partitions=frozenset(plan.get(member.member_id, ())))
            )
            for member in members
        }

    def withheld(
        self,
        protocol_name: ProtocolName,
        members: Sequence[OfferedMember],
        plan: Mapping[MemberId, bytes],
        partitions: Mapping[str, int],
    ) -> dict[MemberId, int]:
        """How many partitions each of these holds that a plan gives to nobody; only above 0.

        They are to let go of them, and to come back and say so.
        """
        given = {tp for data in plan.values() for tp in decode_assignment(data).partitions}
        if len(given) == sum(partitions.values()):
            return {}
        held = {}
        for member in members:
            owned = _member_spec(protocol_name, member).owned
            free = [p for p in owned if p.partition < partitions.get(p.topic, 0) and p not in given]
            if free:
                held[member.member_id] = len(free)
        return held

    def noted(self, assignment: bytes, note: LeadersNote) -> bytes:
        """A static member's assignment, with what its leader notes for it."""
        given = decode_assignment(assignment).partitions
        return encode_assignment(Assignment(partitions=given, user_data=encode_note(note)))

    def note(self, assignment: bytes) -> LeadersNote | None:
        """The note in an assignment; None if no kohort leader left one."""
        try:
            return note_in_userdata(decode_assignment(assignment).user_data)
        except ProtocolError:
            return None


def group_spec(
    protocol_name: ProtocolName, members: Sequence[OfferedMember], partitions: Mapping[str, int]
) -> GroupSpec:
    """What everybody offered under the chosen name, as a spec."""
    return GroupSpec(
        members={m.member_id: _member_spec(protocol_name, m) for m in members},
        partitions=dict(partitions),
    )


def _member_spec(protocol_name: ProtocolName, member: OfferedMember) -> MemberSpec:
    subscription = _subscription(member.metadata)
    owned, generation_id = subscription.owned, subscription.generation_id
    if protocol_name == "sticky":
        # Eager members own nothing when they join; what they had stands in their userdata.
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
    )


def _subscription(metadata: bytes) -> Subscription:
    try:
        return decode_subscription(metadata)
    except ProtocolError:
        return Subscription(topics=frozenset())
