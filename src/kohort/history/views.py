"""The state of groups, members and processes at one point of a history.

In and out: plain values that ``World`` changes and checks read. ``known`` is True if the history
shows a group since its creation or loading. Nothing may be concluded about the time before. Must
not know: facts, checks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.model.group_state import GroupState
from kohort.model.ids import (
    NO_GENERATION,
    NO_MEMBER,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    Token,
    TopicPartition,
)
from kohort.model.instants import Instant, Millis
from kohort.model.wire_facts import JoinAsked

Partitions = frozenset[TopicPartition]


@dataclass(slots=True, kw_only=True)
class MemberView:
    """A member in its coordinator's state."""

    member_id: MemberId
    session_timeout_ms: Millis
    rebalance_timeout_ms: Millis
    added_at: Instant
    group_instance_id: GroupInstanceId | None = None
    is_new: bool = True
    """The member was in no generation yet."""
    join_parked: bool = False
    sync_tokens: set[Token] = field(default_factory=set)
    """SyncGroup requests without an answer."""
    alive_for_sure: Instant = Instant(0)
    """The latest instant at which its session timeout was certainly reset."""
    alive_perhaps: Instant = Instant(0)
    """The latest instant at which its session timeout may have been reset."""
    exact: bool = True
    """Its timeouts are known; those of a member that was only loaded from the log are not."""

    @property
    def parked(self) -> bool:
        """Whether one of its requests is parked."""
        return self.join_parked or bool(self.sync_tokens)


@dataclass(slots=True, kw_only=True)
class PendingView:
    """A member id that was handed out and not used yet."""

    at: Instant
    session_timeout_ms: Millis | None


@dataclass(slots=True, kw_only=True)
class GenerationView:
    """A generation since its join phase ended."""

    number: GenerationId
    opened_at: Instant
    protocol_name: str
    leader_id: MemberId
    member_ids: tuple[MemberId, ...]
    offers: dict[MemberId, JoinAsked]
    """The offers of members when the generation opened, if they are known."""
    consumers: bool = True
    """Whether metadata and assignments have the consumer format."""
    assigned_at: Instant | None = None
    assigned_by: MemberId = NO_MEMBER
    """The leader that made the assignment. A process that replaces this leader has another id."""
    assignments: dict[MemberId, bytes] = field(default_factory=dict)
    targets: dict[MemberId, Partitions] | None = None
    """The decoded assignments; None before they arrive, or if one cannot be decoded."""

    def rename(self, old: MemberId, new: MemberId) -> None:
        """A static member continues with another member id."""
        if old in self.assignments:
            self.assignments[new] = self.assignments.pop(old)
        if self.targets is not None and old in self.targets:
            self.targets[new] = self.targets.pop(old)
        if old in self.offers:
            self.offers[new] = self.offers.pop(old)
        self.member_ids = tuple(new if m == old else m for m in self.member_ids)
        if self.leader_id == old:
            self.leader_id = new


@dataclass(slots=True, kw_only=True)
class GroupView:
    """A group in its coordinator's state."""

    group_id: GroupId
    known: bool = False
    state: GroupState = GroupState.EMPTY
    state_since: Instant = Instant(0)
    previous_state: GroupState = GroupState.EMPTY
    generation_id: GenerationId = NO_GENERATION
    generation: GenerationView | None = None
    """The newest generation."""
    stable: GenerationView | None = None
    """The newest generation with a durable assignment."""
    recent: dict[GenerationId, GenerationView] = field(default_factory=dict)
    """The last few generations by number."""
    members: dict[MemberId, MemberView] = field(default_factory=dict)
    pending: dict[MemberId, PendingView] = field(default_factory=dict)
    removed: dict[MemberId, Instant] = field(default_factory=dict)
    offers: dict[MemberId, JoinAsked] = field(default_factory=dict)
    """The last JoinGroup of each member."""
    absent: set[MemberId] = field(default_factory=set)
    """Static members of the present generation that did not join in its join phase."""
    renamed: dict[MemberId, MemberId] = field(default_factory=dict)
    """Former ids of static members, each with the id that replaced it."""
    disturbed_at: Instant = Instant(0)
    """The last event that requires a rebalance."""
    phase_timeout_ms: Millis = Millis(0)
    """The longest rebalance timeout of a member when the present phase began."""
    phase_timeout_known: bool = False
    """Whether the timeouts of all members were known at that time."""


@dataclass(slots=True, kw_only=True)
class ProcessView:
    """A process on the application's side, since its last start."""

    source: str
    group_id: GroupId
    incarnation: int
    started_at: Instant
    seen_from_start: bool
    running: bool = True
    paused: bool = False
    cut: bool = False
    self_fencing: bool = False
    auto_commit: bool = False
    session_timeout_ms: Millis = Millis(45_000)
    member_id: MemberId = NO_MEMBER
    owned: dict[TopicPartition, Instant] = field(default_factory=dict)
    """The partitions of the application with the start of their ownership.

    Partitions stay here until their ``on_revoked`` or ``on_lost`` has ended.
    """
    owned_as: dict[TopicPartition, MemberId] = field(default_factory=dict)
    """The member id at the time of each ``on_assigned``."""
    topics: frozenset[str] | None = None

    @property
    def troubled(self) -> bool:
        """Whether the process is stopped or cut off, so that it receives nothing."""
        return self.paused or self.cut
