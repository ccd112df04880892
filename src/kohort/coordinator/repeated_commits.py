"""Commits that differ from an earlier one of the same member in their offsets only.

In: an OffsetCommit, later its handle with other offsets. Out: a handle; the ticket and the offsets
of a later commit, or a refusal to decide. Must not know: bytes, records of the log.

The handle serves the usual case only: a dynamic member of the present generation while its group is
Stable or rebalances. ``offsets.commit`` decides about all other commits (ADR 0105).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from kohort.coordinator.group import Group
from kohort.coordinator.interface import OffsetCommit, OffsetCommitAnswer
from kohort.coordinator.member import Member
from kohort.coordinator.offsets import CommitWrite
from kohort.coordinator.records import CommittedOffset
from kohort.coordinator.registry import Registry
from kohort.model.errors import NO_ERROR, ErrorCode
from kohort.model.group_state import PREPARING_REBALANCE, STABLE
from kohort.model.ids import Ticket, Token, TopicPartition
from kohort.model.instants import MICROS_PER_MILLI

_NO_ERRORS: Final[dict[TopicPartition, ErrorCode]] = {}


class CommitHandle:
    """A commit of a dynamic member of the present generation, for its next commits.

    The handle is valid while the deadline of the member's session is armed, and the member has the
    id of the request. A static member gets another id when another process takes its place.
    """

    __slots__ = ("answer", "event", "generation_id", "group", "member", "places")

    def __init__(self, group: Group, member: Member, event: OffsetCommit) -> None:
        self.group = group
        self.member = member
        self.generation_id = group.generation_id
        self.event = event
        self.places = [(tp, epoch, metadata) for tp, (_, epoch, metadata) in event.offsets]
        self.answer = OffsetCommitAnswer(tuple([(tp, NO_ERROR) for tp, _ in event.offsets]))
        """The answer if all offsets are stored."""


def commit_handle(registry: Registry, event: OffsetCommit) -> CommitHandle | None:
    """A handle for later commits with the values of ``event``; None if ``commit`` must decide."""
    found = registry.present_member(event)
    if found is None or event.retention_ms is not None:
        return None
    handle = CommitHandle(*found, event)
    longest = max([len(metadata) for _, _, metadata in handle.places], default=0)
    is_usual = 0 < len(dict(event.offsets)) == len(event.offsets)
    return handle if is_usual and longest <= registry.config.offset_metadata_max_bytes else None


def commit_again(
    registry: Registry, handle: CommitHandle, token: Token, numbers: Iterable[int]
) -> tuple[Ticket, Collection[CommittedOffset]] | None:
    """Store the offsets ``numbers``; None: nothing was done, and ``offsets.commit`` must decide.

    The caller has checked that all partitions exist. It sends the returned offsets to the log under
    the ticket.
    """
    group, member, connection = handle.group, handle.member, handle.event.connection
    state, session = group.state, member.session
    ends = registry.now + member.session_timeout_ms * MICROS_PER_MILLI
    if (
        handle.generation_id != group.generation_id
        or handle.event.member_id != member.member_id
        or (state is not STABLE and state is not PREPARING_REBALANCE)
        or connection < member.commits_over
        or session is None
        # Instant(...) would cost a call with every commit.
        or not registry.deadlines.postpone(session, ends)  # type: ignore[arg-type]
    ):
        return None
    member.commits_over = connection
    now = registry.time_of_day()
    offsets = {}  # by a loop: a comprehension is a call, and most commits have one partition
    for (tp, epoch, metadata), offset in zip(handle.places, numbers, strict=True):
        offsets[tp] = CommittedOffset(offset, epoch, metadata, now, None)
    group.offsets.send(offsets)
    write = CommitWrite(group, token, handle.event, offsets, _NO_ERRORS, handle.answer)
    return registry.note(write), offsets.values()
