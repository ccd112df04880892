"""What is known of groups, members and processes at one point of a history.

Plain values that ``World`` changes and checks read. ``known`` tells whether a group was seen from
its beginning (or from its loading): what happened before a history begins can be neither held
against it nor taken for granted. Must not know: facts, checks.
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
    """A member as its coordinator sees it."""

    member_id: MemberId
    session_timeout_ms: Millis
    rebalance_timeout_ms: Millis
    added_at: Instant
    group_instance_id: GroupInstanceId | None = None
    is_new: bool = True
    """In no generation yet."""
    join_parked: bool = False
    sync_tokens: set[Token] = field(default_factory=set)
    """SyncGroups that have no answer yet."""
    alive_for_sure: Instant = Instant(0)
    """Latest instant at which its session began anew for certain."""
    alive_perhaps: Instant = Instant(0)
    """Latest instant at which it may have begun anew."""
    exact: bool = True
    """Its timeouts are known; not so for members that came back from a log unseen."""

    @property
    def parked(self) -> bool:
        """Whether one of its requests waits in the coordinator's hands."""
        return self.join_parked or bool(self.sync_tokens)


@dataclass(slots=True, kw_only=True)
class PendingView:
    """An id that was handed out and has not come back."""

    at: Instant
    session_timeout_ms: Millis | None


@dataclass(slots=True, kw_only=True)
class GenerationView:
    """A generation from its opening on."""

    number: GenerationId
    opened_at: Instant
    protocol_name: str
    leader_id: MemberId
    member_ids: tuple[MemberId, ...]
    offers: dict[MemberId, JoinAsked]
    """What each member offered when the generation opened, where that is known."""
    consumers: bool = True
    """Whether metadata and assignments are those of consumers, so that they can be read."""
    assigned_at: Instant | None = None
    assignments: dict[MemberId, bytes] = field(default_factory=dict)
    targets: dict[MemberId, Partitions] | None = None
    """The assignments read; None until they are there, or if they cannot be read."""

    def rename(self, old: MemberId, new: MemberId) -> None:
        """A place goes on under another id."""
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
    """A group as its coordinator sees it."""

    group_id: GroupId
    known: bool = False
    state: GroupState = GroupState.EMPTY
    state_since: Instant = Instant(0)
    previous_state: GroupState = GroupState.EMPTY
    generation_id: GenerationId = NO_GENERATION
    generation: GenerationView | None = None
    """The newest one that was opened."""
    stable: GenerationView | None = None
    """The newest one whose assignment is durable."""
    recent: dict[GenerationId, GenerationView] = field(default_factory=dict)
    """The last few generations by number."""
    members: dict[MemberId, MemberView] = field(default_factory=dict)
    pending: dict[MemberId, PendingView] = field(default_factory=dict)
    removed: dict[MemberId, Instant] = field(default_factory=dict)
    offers: dict[MemberId, JoinAsked] = field(default_factory=dict)
    """The last JoinGroup of each member."""
    absent: set[MemberId] = field(default_factory=set)
    """Static members of the present generation that did not come to its join phase."""
    renamed: dict[MemberId, MemberId] = field(default_factory=dict)
    """Former ids of static members, each with the id that took its place."""
    disturbed_at: Instant = Instant(0)
    """When something last happened that calls for a rebalance."""
    phase_timeout_ms: Millis = Millis(0)
    """The longest rebalance timeout among members when the present phase began."""
    phase_timeout_known: bool = False
    """Whether the timeouts of all members were known at that time."""


@dataclass(slots=True, kw_only=True)
class ProcessView:
    """A process on the application's side, in its present life."""

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
    """What the application was told it owns, since when; what it is being told to give up too."""
    owned_as: dict[TopicPartition, MemberId] = field(default_factory=dict)
    """The member id under which it was told so."""
    topics: frozenset[str] | None = None

    @property
    def troubled(self) -> bool:
        """Whether it stands still or is cut off: it cannot know what happens."""
        return self.paused or self.cut
