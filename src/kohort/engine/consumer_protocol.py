"""The protocol of consumer groups, for one consumer.

In: assignors, the leader's assigner, the member's identity. Out: a ``GroupProtocol`` with
partitions as resources. Must not know: connections, offsets, records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kohort.consumer.embedded_protocol import Announced, EmbeddedProtocol, Offer, R
from kohort.embedded.consumer import decode_assignment
from kohort.embedded.deferral import Echo, decode_pending, pending_of
from kohort.engine.consumer_driver import GroupProtocol
from kohort.member.config import CONSUMER_PROTOCOL_TYPE
from kohort.model.errors import ProtocolError
from kohort.model.ids import TopicPartition
from kohort.model.join import JoinProtocol
from kohort.policies.consumer_groups import ConsumerAssigner, join_protocols
from kohort.policies.registry import is_cooperative
from kohort.policies.spec import Assignor, Say, say_nothing


def echo_of(
    value: Offer[R],
    identity: int | None,
    partition_of: Callable[[R], TopicPartition],
    *,
    prepares: bool,
) -> Echo:
    """The part of an offer that only leaders of kohort read."""
    return Echo(
        pending=pending_of(value.user_data).after(value.elapsed_ms),
        identity=identity,
        draining=value.draining,
        prepares=prepares,
        warm=frozenset(map(partition_of, value.warm)),
    )


def announced(user_data: bytes | None, resource_of: Callable[[TopicPartition], R]) -> Announced[R]:
    """The announcements in the userdata of an assignment."""
    pending = pending_of(user_data)
    partitions = frozenset[TopicPartition]().union(*(each.partitions for each in pending.handovers))
    return Announced(
        prepare=frozenset(map(resource_of, partitions)),
        standbys=frozenset(map(resource_of, pending.standbys)),
        postponed=pending.postponed > 0,
    )


def readable(user_data: bytes | None, warn: Say) -> bytes | None:
    """The userdata of an assignment; None if it is damaged or newer, and then the log says so."""
    try:
        decode_pending(user_data)
    except ProtocolError as error:
        warn(f"the leader's userdata in the assignment of this member is ignored: {error}")
        return None
    return user_data


def _itself(partition: TopicPartition) -> TopicPartition:
    return partition


def consumer_protocol(
    assignors: tuple[Assignor, ...],
    rack_id: str | None = None,
    assigner: ConsumerAssigner | None = None,
    identity: int | None = None,
    stateful: frozenset[str] = frozenset(),
    *,
    warn: Say = say_nothing,
) -> GroupProtocol[TopicPartition]:
    """The protocol of consumer groups, for a consumer with these assignors.

    Args:
        assignors: best first.
        rack_id: client.rack.
        assigner: decides if this member leads.
        identity: the number of a member that is the same in its next process.
        stateful: topics with partitions that this consumer prepares before it gets them.
        warn: takes a sentence about a fault, for the log of the consumer's process.
    """

    def offer(value: Offer[TopicPartition]) -> tuple[JoinProtocol, ...]:
        return join_protocols(
            assignors,
            value.topics,
            owned=value.owned,
            previous=value.previous,
            generation_id=value.generation_id,
            rack_id=rack_id,
            echo=echo_of(value, identity, _itself, prepares=bool(stateful)),
        )

    def read_assignment(data: bytes) -> tuple[frozenset[TopicPartition], bytes | None]:
        assignment = decode_assignment(data)
        return frozenset(assignment.partitions), readable(assignment.user_data, warn)

    return GroupProtocol(
        type=CONSUMER_PROTOCOL_TYPE,
        embedded=EmbeddedProtocol(
            offer=offer,
            read_assignment=read_assignment,
            is_cooperative=is_cooperative,
            name_of=lambda partition: partition.topic,
            offers_eager=not all(is_cooperative(each.name) for each in assignors),
            announced=partial(announced, resource_of=_itself),
        ),
        assigner=assigner or ConsumerAssigner(),
    )
