"""Commits and fetches of offsets.

In: OffsetCommit, OffsetFetch, the outcome of writes. Out: answers; the answer to a commit leaves
when its offsets are durable. Must not know: which topics exist (the event names unknown ones).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    FetchedGroup,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
)
from kohort.coordinator.records import CommittedOffset, OffsetRecord, Record
from kohort.coordinator.registry import Registry, Write
from kohort.model.errors import NO_ERROR, ErrorCode
from kohort.model.facts import OffsetsCommitted
from kohort.model.group_state import COMPLETING_REBALANCE, DEAD, EMPTY
from kohort.model.ids import Ticket, Token, TopicPartition
from kohort.model.instants import WallMillis


@dataclass(slots=True)
class CommitWrite:
    """A commit on its way to the log; its answer waits for the outcome."""

    purpose: ClassVar = "offset commit"
    group: Group
    token: Token
    event: OffsetCommit
    """The request, or an earlier one that differs in token and offsets only."""
    offsets: dict[TopicPartition, CommittedOffset]
    errors: dict[TopicPartition, ErrorCode]
    answer: OffsetCommitAnswer
    """The answer if the offsets become durable."""

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """Let readers see the offsets, and answer."""
        self.group.offsets.settle(ticket, self.offsets, durable=True)
        if registry.details():
            event = self.event
            offsets = tuple([(tp, kept.offset) for tp, kept in self.offsets.items()])
            registry.observe(
                OffsetsCommitted(self.group.group_id, event.member_id, event.generation_id, offsets)
            )
        registry.respond(self.token, self.answer)

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """Earlier offsets stay; a group that exists only for this commit is forgotten."""
        self.group.offsets.settle(ticket, self.offsets, durable=False)
        drop_if_never_written(registry, self.group)
        registry.respond(self.token, _answer(self.event, self.errors, error))


def commit(registry: Registry, event: OffsetCommit) -> None:
    """Serve an OffsetCommit."""
    group = registry.groups.get(event.group_id)
    error = _group_error(registry, group, event)
    if error is not NO_ERROR:
        # Unknown partitions have their own error even then: Kafka checks them before the group.
        unknown = dict.fromkeys(event.unknown_partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        registry.respond(event.token, _answer(event, unknown, error))
        return
    offsets, errors = _checked(registry, event)
    answer = _answer(event, errors, NO_ERROR)
    if not offsets:
        registry.respond(event.token, answer)
        return
    if group is None:
        if not registry.has_room(event.group_id):
            full = ErrorCode.COORDINATOR_NOT_AVAILABLE
            registry.respond(event.token, _answer(event, errors, full))
            return
        group = Group(group_id=event.group_id)
        registry.adopt(group, simple=True)
    write = CommitWrite(group, event.token, event, offsets, errors, answer)
    write_offsets(registry, write, offsets)


def _group_error(  # noqa: PLR0911 - one gate a line reads better than a nest
    registry: Registry, group: Group | None, event: OffsetCommit
) -> ErrorCode:
    """The error if the sender may not commit in this group now; otherwise its session restarts."""
    if registry.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    anonymous = event.generation_id < 0
    if group is None:
        if anonymous:
            return NO_ERROR
        if event.knows_group_id_not_found:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if anonymous and group.state is EMPTY:
        return NO_ERROR
    if anonymous and not event.member_id and event.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _member_error(registry, group, event)


def _member_error(registry: Registry, group: Group, event: OffsetCommit) -> ErrorCode:
    member = group.members.get(event.member_id)
    if member is None or event.group_instance_id is not None:
        error = group.identify(event.member_id, event.group_instance_id)
        if member is None or error is not NO_ERROR:
            return error
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is COMPLETING_REBALANCE:
        # The member does not know its assignment yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    if event.connection >= member.commits_over:
        member.commits_over = event.connection
    elif _goes_back(group, event):
        # The member has committed on a connection that it opened later, so this commit is late,
        # and would lower an offset. Kafka stores such a commit (ADR 0039).
        return ErrorCode.REQUEST_TIMED_OUT
    registry.arm_session(member)
    return NO_ERROR


def _goes_back(group: Group, event: OffsetCommit) -> bool:
    """Whether a commit would lower an offset that is stored or on its way to the log."""
    for tp, wanted in event.offsets:
        kept = group.offsets.latest(tp)
        if kept is not None and wanted.offset < kept.offset:
            return True
    return False


def _checked(
    registry: Registry, event: OffsetCommit
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, ErrorCode]]:
    """The offsets to store, and the errors of refused partitions."""
    now = registry.time_of_day()
    expires = None if event.retention_ms is None else WallMillis(now + event.retention_ms)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[TopicPartition, ErrorCode] = {}
    for tp, wanted in event.offsets:
        if tp in event.unknown_partitions:
            errors[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(wanted.metadata) > registry.config.offset_metadata_max_bytes:
            errors[tp] = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            offsets[tp] = CommittedOffset(
                wanted.offset, wanted.leader_epoch, wanted.metadata, now, expires
            )
    return offsets, errors


def _answer(
    event: OffsetCommit, errors: dict[TopicPartition, ErrorCode], group_error: ErrorCode
) -> OffsetCommitAnswer:
    """Partitions in the request's order; an error of the group is repeated for each of them."""
    return OffsetCommitAnswer(tuple([(tp, errors.get(tp, group_error)) for tp, _ in event.offsets]))


def write_offsets(
    registry: Registry,
    write: Write,
    values: Mapping[TopicPartition, CommittedOffset | None],
    more: tuple[Record, ...] = (),
) -> Ticket:
    """Send offsets of a group, or None for tombstones, to the log, and ``more`` after them.

    When the outcome is known, the write must call ``OffsetTable.settle`` with the same values.
    """
    group = write.group
    group.offsets.send(values)
    records = [OffsetRecord(group.group_id, tp, value) for tp, value in values.items()]
    return registry.append(write, tuple(records) + more)


def drop_if_never_written(registry: Registry, group: Group) -> None:
    """Forget a simple group if the log has no record of it."""
    if (
        registry.is_live(group)
        and group.is_unused
        and group.protocol_type is None
        and group.generation_id == 0
        and not group.has_reservations
        and group.state is EMPTY
    ):
        del registry.groups[group.group_id]


def fetch(registry: Registry, event: OffsetFetch) -> None:
    """Serve an OffsetFetch, in any state, for members and others."""
    groups = tuple(_fetched(registry, wanted) for wanted in event.groups)
    registry.respond(event.token, OffsetFetchAnswer(groups=groups))


def _fetched(registry: Registry, wanted: GroupToFetch) -> FetchedGroup:
    if registry.loading:
        return FetchedGroup(
            group_id=wanted.group_id,
            error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            offsets=(),
        )
    group = registry.groups.get(wanted.group_id)
    offsets = group.offsets.durable if group is not None else {}
    partitions = tuple(offsets) if wanted.partitions is None else wanted.partitions
    return FetchedGroup(
        group_id=wanted.group_id,
        error=NO_ERROR,
        offsets=tuple((tp, offsets.get(tp)) for tp in partitions),
    )
