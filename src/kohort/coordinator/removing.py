"""The ends of offsets and groups: requests, deleted topics, retention.

In: OffsetDelete, DeleteGroups, TopicsDeleted, the sweep timer, the outcome of tombstones. Out:
answers, when the tombstones are durable. Must not know: commits.

While its tombstone is on its way, a group is Dead. Requests are then told to look for the
coordinator again, and readers still see the offsets. If the write fails, the group is what it was
before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    DeleteAnswer,
    DeleteGroups,
    OffsetDelete,
    OffsetDeleteAnswer,
    TopicsDeleted,
)
from kohort.coordinator.offsets import write_offsets
from kohort.coordinator.records import CommittedOffset, GenerationRecord, GroupRecord, Record
from kohort.coordinator.registry import Registry
from kohort.coordinator.timers import SWEEP_TIMER, session_timer
from kohort.model.errors import ErrorCode
from kohort.model.facts import GroupDeleted, OffsetsExpired
from kohort.model.group_state import GroupState
from kohort.model.ids import GroupId, Ticket, Token, TopicPartition
from kohort.model.instants import WallMillis

SWEEP_CHUNK = 500
"""Groups of one step of a sweep; heartbeats are served between two steps."""

_MILLIS_PER_MINUTE = 60_000


@dataclass(slots=True, kw_only=True)
class TombstonesWrite:
    """Tombstones of offsets on their way to the log; an answer may wait for them."""

    purpose: ClassVar = "offset tombstones"
    group: Group
    partitions: dict[TopicPartition, CommittedOffset | None]
    waiting: tuple[Token, OffsetDeleteAnswer] | None = None
    expired: bool = False
    """The retention of the offsets has passed."""

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Answer: the offsets are deleted."""
        self.group.offsets.settle(ticket, self.partitions, durable=True)
        if self.expired:
            registry.observe(
                OffsetsExpired(group_id=self.group.group_id, partitions=tuple(self.partitions))
            )
        if self.waiting is not None:
            registry.respond(*self.waiting)

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """Answer with an error: the offsets stay."""
        self.group.offsets.settle(ticket, self.partitions, durable=False)
        if self.waiting is not None:
            token, _ = self.waiting
            registry.respond(token, OffsetDeleteAnswer(error=error))


@dataclass(slots=True, kw_only=True)
class DeletionReply:
    """The answer to a DeleteGroups; it waits for the tombstones of several groups."""

    token: Token
    group_ids: tuple[GroupId, ...]
    errors: list[ErrorCode]
    outstanding: int = 0

    def settle(self, registry: Registry, index: int, error: ErrorCode) -> None:
        """Note the outcome of one group."""
        self.errors[index] = error
        self.outstanding -= 1
        self.respond_if_complete(registry)

    def respond_if_complete(self, registry: Registry) -> None:
        """Answer if all outcomes are known."""
        if not self.outstanding:
            groups = tuple(zip(self.group_ids, self.errors, strict=True))
            registry.respond(self.token, DeleteAnswer(groups=groups))


@dataclass(slots=True, kw_only=True)
class DeletionWrite:
    """The tombstones of a group's offsets and of the group, on their way to the log."""

    purpose: ClassVar = "group tombstone"
    group: Group
    partitions: dict[TopicPartition, CommittedOffset | None]
    state_timestamp: WallMillis
    """The group's state timestamp before, for the case that the write fails."""

    reply: DeletionReply | None = None
    index: int = 0
    expired: bool = False

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Forget the group, and answer."""
        group = self.group
        group.offsets.settle(ticket, self.partitions, durable=True)
        for member_id in group.pending:
            registry.deadlines.cancel(session_timer(group.group_id, member_id))
        if self.expired and self.partitions:
            registry.observe(
                OffsetsExpired(group_id=group.group_id, partitions=tuple(self.partitions))
            )
        registry.observe(
            GroupDeleted(
                group_id=group.group_id,
                generation_id=group.generation_id,
                offset_count=len(self.partitions),
                expired=self.expired,
            )
        )
        del registry.groups[group.group_id]
        if self.reply is not None:
            self.reply.settle(registry, self.index, ErrorCode.NONE)

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """Restore the group: the only way out of Dead."""
        group = self.group
        group.offsets.settle(ticket, self.partitions, durable=False)
        group.state = GroupState.EMPTY
        group.current_state_timestamp = self.state_timestamp
        group.deletion = None
        if self.reply is not None:
            self.reply.settle(registry, self.index, error)


def delete_groups(registry: Registry, event: DeleteGroups) -> None:
    """Serve a DeleteGroups: a write for each group, one answer for all."""
    reply = DeletionReply(
        token=event.token,
        group_ids=event.group_ids,
        errors=[ErrorCode.NONE] * len(event.group_ids),
    )
    for index, group_id in enumerate(event.group_ids):
        group = registry.groups.get(group_id)
        error = _deletion_error(registry, group)
        if error is not ErrorCode.NONE or group is None:
            reply.errors[index] = error
            continue
        reply.outstanding += 1
        _bury(registry, group, reply=reply, index=index)
    reply.respond_if_complete(registry)


def _deletion_error(registry: Registry, group: Group | None) -> ErrorCode:
    if registry.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def _bury(
    registry: Registry,
    group: Group,
    *,
    reply: DeletionReply | None = None,
    index: int = 0,
    expired: bool = False,
) -> None:
    """Send a group's tombstones. Offsets on their way to the log get a tombstone, too."""
    partitions: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(group.offsets)
    write = DeletionWrite(
        group=group,
        partitions=partitions,
        state_timestamp=group.current_state_timestamp,
        reply=reply,
        index=index,
        expired=expired,
    )
    group.move_to(GroupState.DEAD, registry.time_of_day())
    tombstones: tuple[Record, ...] = (GroupRecord(group_id=group.group_id, value=None),)
    if group.has_reservations:
        tombstones += (GenerationRecord(group_id=group.group_id, value=None),)
    group.deletion = write_offsets(registry, write, partitions, more=tombstones)


def delete_offsets(registry: Registry, event: OffsetDelete) -> None:
    """Serve an OffsetDelete. Partitions of a subscribed topic are refused one by one."""
    group = registry.groups.get(event.group_id)
    error = _offset_delete_error(registry, group, event.group_id)
    if error is not ErrorCode.NONE or group is None:
        registry.respond(event.token, OffsetDeleteAnswer(error=error))
        return
    live = group.state is not GroupState.EMPTY
    results: list[tuple[TopicPartition, ErrorCode]] = []
    doomed: dict[TopicPartition, CommittedOffset | None] = {}
    for tp in event.partitions:
        if tp in event.unknown_partitions:
            results.append((tp, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif live and group.is_subscribed(tp.topic):
            results.append((tp, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
        else:
            results.append((tp, ErrorCode.NONE))
            if tp in group.offsets:
                doomed[tp] = None
    answer = OffsetDeleteAnswer(partitions=tuple(results))
    if not doomed:
        registry.respond(event.token, answer)
        return
    write = TombstonesWrite(group=group, partitions=doomed, waiting=(event.token, answer))
    write_offsets(registry, write, doomed)


def _offset_delete_error(registry: Registry, group: Group | None, group_id: GroupId) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if registry.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if group is None or group.state is GroupState.DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def topics_deleted(registry: Registry, event: TopicsDeleted) -> None:
    """Delete the offsets of deleted topics in all groups."""
    for group in registry.groups.values():
        if group.state is GroupState.DEAD:
            continue
        doomed: dict[TopicPartition, CommittedOffset | None] = {
            tp: None for tp in group.offsets if tp.topic in event.topics
        }
        if doomed:
            write_offsets(registry, TombstonesWrite(group=group, partitions=doomed), doomed)


def sweep_timer_fired(registry: Registry) -> None:
    """Delete expired offsets of the next groups; the timer fires soon again if groups are left."""
    if not registry.sweep_queue:
        registry.sweep_queue = list(registry.groups)
    chunk = registry.sweep_queue[:SWEEP_CHUNK]
    del registry.sweep_queue[:SWEEP_CHUNK]
    for group_id in chunk:
        group = registry.groups.get(group_id)
        if group is not None and group.state is not GroupState.DEAD:
            _expire(registry, group)
    interval = registry.config.offsets_retention_check_interval_ms
    registry.arm(SWEEP_TIMER, 1 if registry.sweep_queue else interval)


def _expire(registry: Registry, group: Group) -> None:
    now = registry.time_of_day()
    if now < 0:
        return
    retention = registry.config.offsets_retention_minutes * _MILLIS_PER_MINUTE
    expired: dict[TopicPartition, CommittedOffset | None] = {
        tp: None
        for tp, kept in group.offsets.durable.items()
        if tp not in group.offsets.writes
        and _may_expire(group, tp)
        and now >= _expires_at(group, kept, retention)
    }
    empty = group.state is GroupState.EMPTY and not group.pending and not group.offsets.writes
    if empty and len(expired) == len(group.offsets.durable):
        _bury(registry, group, expired=True)
    elif expired:
        write = TombstonesWrite(group=group, partitions=expired, expired=True)
        write_offsets(registry, write, expired)


def _may_expire(group: Group, tp: TopicPartition) -> bool:
    """In an Empty group all offsets may expire, in a Stable one those of other topics."""
    if group.state is GroupState.EMPTY:
        return True
    return (
        group.state is GroupState.STABLE
        and group.uses_consumer_protocol
        and group.subscribed_topics is not None
        and tp.topic not in group.subscribed_topics
    )


def _expires_at(group: Group, kept: CommittedOffset, retention_ms: int) -> int:
    """When an offset expires: the retention starts when the group becomes Empty (KIP-211)."""
    if kept.expire_timestamp is not None:
        return kept.expire_timestamp
    base = kept.commit_timestamp
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since = group.current_state_timestamp
        base = since if since >= 0 else base
    return base + retention_ms
