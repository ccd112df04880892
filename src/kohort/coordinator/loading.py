"""The groups of an empty coordinator, made from the records of the log.

In: records in the log's order, then ``Loaded``. Out: groups, Stable with members and Empty without,
with full sessions. Must not know: bytes, files. Data that was not durable is lost: handed-out ids,
parked requests, a rebalance under way.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kohort.coordinator.group import Group
from kohort.coordinator.interface import Replay
from kohort.coordinator.member import Member
from kohort.coordinator.rebalancing import prepare_rebalance, read_subscriptions
from kohort.coordinator.records import (
    CommittedOffset,
    GenerationRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    Record,
    ReservedGeneration,
)
from kohort.coordinator.registry import Registry
from kohort.coordinator.timers import SWEEP_TIMER, session_timer
from kohort.model.errors import InvariantViolation
from kohort.model.facts import GroupLoaded, RebalanceCause
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    GroupId,
    ProtocolName,
    TopicPartition,
)
from kohort.model.join import JoinProtocol
from kohort.model.values import shared


@dataclass(slots=True)
class Loading:
    """The last record of each key so far."""

    groups: dict[GroupId, GroupMetadata] = field(default_factory=dict)
    reservations: dict[GroupId, ReservedGeneration] = field(default_factory=dict)
    offsets: dict[GroupId, dict[TopicPartition, CommittedOffset]] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Add the next record."""
        if isinstance(record, GroupRecord):
            self._take_group(record.group_id, record.value)
            return
        if isinstance(record, GenerationRecord):
            if record.value is None:
                self.reservations.pop(record.group_id, None)
            else:
                self.reservations[record.group_id] = record.value
            return
        offsets = self.offsets.setdefault(record.group_id, {})
        if record.value is not None:
            offsets[record.partition] = record.value
            return
        offsets.pop(record.partition, None)
        if not offsets:
            del self.offsets[record.group_id]

    def _take_group(self, group_id: GroupId, value: GroupMetadata | None) -> None:
        if value is None:
            self.groups.pop(group_id, None)
            return
        self.groups[group_id] = value
        reserved = self.reservations.get(group_id)
        if reserved is not None and reserved.static_members:
            # This record is younger and has the present ids of static members.
            self.reservations[group_id] = replace(reserved, static_members=())


def replay(registry: Registry, loading: Loading, event: Replay) -> None:
    """Read records; requests are refused until ``Loaded``.

    Raises:
        InvariantViolation: the coordinator has groups, which records of a log would overwrite.
    """
    if registry.groups:
        raise InvariantViolation(
            f"a log can be replayed into an empty coordinator only, but this one has "
            f"{len(registry.groups)} groups; make a new coordinator and replay first"
        )
    registry.loading = True
    for record in event.records:
        loading.take(record)


def finish(registry: Registry, loading: Loading) -> None:
    """Make the groups."""
    registry.loading = False
    for group_id, reserved in loading.reservations.items():
        # Members may know the reserved number, even if the group's own record was lost.
        metadata = loading.groups.get(group_id, _UNWRITTEN)
        loading.groups[group_id] = _with_present_ids(metadata, reserved)
    for group_id, metadata in loading.groups.items():
        _revive(registry, group_id, metadata, loading.reservations.get(group_id))
    for group_id, offsets in loading.offsets.items():
        group = registry.groups.get(group_id)
        if group is None:
            group = registry.groups[group_id] = Group(group_id=group_id)
        group.offsets.durable = offsets
    loading.groups, loading.offsets, loading.reservations = {}, {}, {}
    registry.arm(SWEEP_TIMER, registry.config.offsets_retention_check_interval_ms)


_UNWRITTEN: Final = Group(group_id=GroupId("")).metadata({})


def _with_present_ids(metadata: GroupMetadata, reserved: ReservedGeneration) -> GroupMetadata:
    """The record with the ids that static members got after it was written."""
    present = dict(reserved.static_members)
    if not present:
        return metadata
    leader_id = metadata.leader_id
    members: list[MemberMetadata] = []
    for member in metadata.members:
        instance = member.group_instance_id
        member_id = (
            member.member_id if instance is None else present.get(instance, member.member_id)
        )
        if member.member_id == metadata.leader_id:
            leader_id = member_id
        members.append(replace(member, member_id=member_id))
    return replace(metadata, leader_id=leader_id, members=tuple(members))


def _revive(
    registry: Registry,
    group_id: GroupId,
    metadata: GroupMetadata,
    reserved: ReservedGeneration | None,
) -> None:
    group = Group(
        group_id=group_id,
        generation_id=metadata.generation_id,
        current_state_timestamp=metadata.current_state_timestamp,
        protocol_type=metadata.protocol_type or None,
        subscribed_topics=frozenset(),
    )
    registry.groups[group_id] = group
    if reserved is not None:
        group.has_reservations = True
        group.floor = reserved.generation_id
        group.renamed = dict(reserved.static_members)
    if metadata.members:
        _revive_members(registry, group, metadata)
    registry.observe(
        GroupLoaded(
            group_id=group_id,
            generation_id=group.generation_id,
            member_count=len(group.members),
            members=tuple((m.member_id, m.group_instance_id) for m in group.members.values()),
        )
    )
    if len(group.members) > registry.config.max_size:
        prepare_rebalance(registry, group, RebalanceCause.OVER_CAPACITY)


def _revive_members(registry: Registry, group: Group, metadata: GroupMetadata) -> None:
    """Make the members, each with the one protocol of the record and a full session."""
    name = metadata.protocol_name or ProtocolName("")
    for kept in metadata.members:
        member = Member(
            member_id=kept.member_id,
            group_instance_id=kept.group_instance_id,
            client_id=shared(kept.client_id),
            client_host=shared(kept.client_host),
            session_timeout_ms=shared(kept.session_timeout_ms),
            rebalance_timeout_ms=shared(kept.rebalance_timeout_ms),
            protocols=(JoinProtocol(name=name, metadata=kept.subscription),),
            session_timer=session_timer(group.group_id, kept.member_id),
            assignment=kept.assignment,
            is_new=False,
        )
        group.add(member, metadata.protocol_type)
        registry.arm_session(member)
    if metadata.leader_id in group.members:
        group.leader_id = metadata.leader_id
    group.protocol_name = name
    group.state = GroupState.STABLE
    read_subscriptions(registry, group)
