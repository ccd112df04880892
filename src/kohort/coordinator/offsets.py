"""Committed offsets: storing and fetching them.

Comes in: OffsetCommit, OffsetFetch, the outcome of writes. Goes out: answers, that of a commit only
once it is durable. Must not know: which topics exist (the event says which are unknown).

Readers see durable offsets only. Writes of one partition take effect in the order of their
tickets, which is the order of the log, whatever order their outcomes come in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kohort.coordinator.group import Group, OffsetWrites
from kohort.coordinator.interface import (
    FetchedGroup,
    GroupToFetch,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
)
from kohort.coordinator.records import CommittedOffset, OffsetRecord, Record
from kohort.coordinator.registry import Registry, Write, mapped_append_error
from kohort.model.errors import ErrorCode
from kohort.model.facts import OffsetsCommitted, WriteFailed
from kohort.model.group_state import GroupState
from kohort.model.ids import Ticket, TopicPartition
from kohort.model.instants import WallMillis

_NO_ERROR: Final = ErrorCode.NONE
"""Under a name of its own, since to look it up in its class each time is not free."""

_NO_TICKET: Final = Ticket(0)


@dataclass(slots=True)
class CommitWrite:
    """A commit on its way to the log, with the answer that waits for it."""

    group: Group
    event: OffsetCommit
    offsets: dict[TopicPartition, CommittedOffset]
    errors: dict[TopicPartition, ErrorCode]

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """The offsets may be read, and the committer told."""
        settle_offsets(self.group, ticket, self.offsets, durable=True)
        event = self.event
        offsets = tuple([(tp, kept.offset) for tp, kept in self.offsets.items()])
        registry.observe(
            OffsetsCommitted(self.group.group_id, event.member_id, event.generation_id, offsets)
        )
        registry.respond(event.token, _answer(event, self.errors, _NO_ERROR))

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """What was committed before stays; a group that exists only by this commit goes."""
        registry.observe(
            WriteFailed(group_id=self.group.group_id, purpose="offset commit", error=error)
        )
        settle_offsets(self.group, ticket, self.offsets, durable=False)
        drop_if_never_written(registry, self.group)
        told = mapped_append_error(error)
        registry.respond(self.event.token, _answer(self.event, self.errors, told))


def commit(registry: Registry, event: OffsetCommit) -> None:
    """Serve an OffsetCommit."""
    group = registry.groups.get(event.group_id)
    error = _group_error(registry, group, event)
    if error is not _NO_ERROR:
        # Unknown partitions are told apart even then: Kafka looks at them before the group.
        unknown = dict.fromkeys(event.unknown_partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        registry.respond(event.token, _answer(event, unknown, error))
        return
    offsets, errors = _sort_out(registry, event)
    if not offsets:
        registry.respond(event.token, _answer(event, errors, _NO_ERROR))
        return
    if group is None:
        if not registry.has_room(event.group_id):
            full = ErrorCode.COORDINATOR_NOT_AVAILABLE
            registry.respond(event.token, _answer(event, errors, full))
            return
        group = Group(group_id=event.group_id)
        registry.adopt(group, simple=True)
    write_offsets(registry, CommitWrite(group, event, offsets, errors), offsets)


def _group_error(  # noqa: PLR0911 - one gate a line reads better than a nest
    registry: Registry, group: Group | None, event: OffsetCommit
) -> ErrorCode:
    """Whether the sender may commit in this group now; its session counts as touched if so."""
    if registry.loading:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    anonymous = event.generation_id < 0
    if group is None:
        if anonymous:
            return _NO_ERROR
        if event.knows_group_id_not_found:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if anonymous and group.state is GroupState.EMPTY:
        return _NO_ERROR
    if anonymous and not event.member_id and event.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return _member_error(registry, group, event)


def _member_error(registry: Registry, group: Group, event: OffsetCommit) -> ErrorCode:
    error = group.identify(event.member_id, event.group_instance_id)
    if error is not _NO_ERROR:
        return error
    if event.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member has not seen its assignment, so it cannot know what it owns.
        return ErrorCode.REBALANCE_IN_PROGRESS
    member = group.members[event.member_id]
    if event.connection >= member.commits_over:
        member.commits_over = event.connection
    elif _goes_back(group, event):
        # Its sender gave that connection up, or it would not have opened another to commit over:
        # this one is late, and takes back what came since. Kafka stores it (docs/adr/0039).
        return ErrorCode.REQUEST_TIMED_OUT
    registry.arm_session(member)
    return _NO_ERROR


def _goes_back(group: Group, event: OffsetCommit) -> bool:
    """Whether a commit would lower an offset, as it is stored or on its way to the log."""
    for tp, wanted in event.offsets:
        under_way = group.offset_writes.get(tp)
        kept = group.offsets.get(tp) if under_way is None else under_way.sent
        if kept is not None and wanted.offset < kept.offset:
            return True
    return False


def _sort_out(
    registry: Registry, event: OffsetCommit
) -> tuple[dict[TopicPartition, CommittedOffset], dict[TopicPartition, ErrorCode]]:
    """What is to be stored, and what is refused by itself."""
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
    """Partitions in the request's order; an error of the group is copied onto all of them."""
    return OffsetCommitAnswer(tuple([(tp, errors.get(tp, group_error)) for tp, _ in event.offsets]))


def write_offsets(
    registry: Registry,
    write: Write,
    values: Mapping[TopicPartition, CommittedOffset | None],
    more: tuple[Record, ...] = (),
) -> Ticket:
    """Send values, or with None tombstones, of a group's offsets to the log, and ``more`` behind.

    The write must hand the same partitions to ``settle_offsets`` once its outcome is known.
    """
    group = write.group
    for tp, value in values.items():
        under_way = group.offset_writes.get(tp)
        if under_way is None:
            group.offset_writes[tp] = OffsetWrites(1, value, _NO_TICKET)
        else:
            under_way.count += 1
            under_way.sent = value
    records = [OffsetRecord(group.group_id, tp, value) for tp, value in values.items()]
    return registry.append(write, (*records, *more))


def settle_offsets(
    group: Group,
    ticket: Ticket,
    values: Mapping[TopicPartition, CommittedOffset | None],
    *,
    durable: bool,
) -> None:
    """Make durable values readable, unless a later write of the partition was durable first."""
    for tp, value in values.items():
        under_way = group.offset_writes[tp]
        under_way.count -= 1
        if not under_way.count:
            del group.offset_writes[tp]
        if not durable or ticket < under_way.applied:
            continue
        under_way.applied = ticket
        if value is None:
            group.offsets.pop(tp, None)
        else:
            group.offsets[tp] = value


def drop_if_never_written(registry: Registry, group: Group) -> None:
    """Forget a simple group of which nothing reached the log."""
    if (
        registry.is_live(group)
        and group.is_unused
        and group.protocol_type is None
        and group.generation_id == 0
        and not group.has_reservations
        and group.state is GroupState.EMPTY
    ):
        del registry.groups[group.group_id]


def fetch(registry: Registry, event: OffsetFetch) -> None:
    """Serve an OffsetFetch: in any state, to anybody."""
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
    offsets = group.offsets if group is not None else {}
    partitions = tuple(offsets) if wanted.partitions is None else wanted.partitions
    return FetchedGroup(
        group_id=wanted.group_id,
        error=_NO_ERROR,
        offsets=tuple((tp, offsets.get(tp)) for tp in partitions),
    )
