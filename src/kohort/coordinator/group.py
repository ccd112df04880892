"""One classic group: its members, its state, and what may follow what.

Lives here: the data of a group and the questions that can be answered from it alone. Comes in:
calls from the phases (``joining``, ``syncing``, ``liveness``, ``offsets``), which decide. Must not
know: tokens' owners, deadlines, the log, other groups.

A group is really three machines that meet:

- the *state*, whose legal moves are ``TRANSITIONS``;
- each *member*, which is away, parked in a join, or parked in a sync;
- the *handed-out ids* (``pending``), no members yet, which can hold up a join phase for a moment.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kohort.coordinator.records import (
    NO_TIMESTAMP,
    CommittedOffset,
    GroupMetadata,
    MemberMetadata,
)
from kohort.coordinator.timers import Timer, session_timer
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.facts import Fact
from kohort.model.group_config import PENDING_MEMBER_GRACE_MS
from kohort.model.group_state import GroupState
from kohort.model.ids import (
    NO_CONNECTION,
    ConnectionId,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    Ticket,
    Token,
    TopicPartition,
)
from kohort.model.instants import MICROS_PER_MILLI, Instant, WallMillis
from kohort.model.join import JoinProtocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CONSUMER = ProtocolType("consumer")

TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.STABLE, GroupState.COMPLETING_REBALANCE}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""For each state, the states it may be entered from."""

_STORY_LENGTH = 24
_MEMBER_OVERHEAD = 64
"""Lengths and numbers of a member in the group's record, and room for a longer id."""
_NEW = GenerationId(0)


@dataclass(slots=True, kw_only=True)
class Member:
    """A member of a group. At most one of ``parked_join`` and ``parked_sync`` is set."""

    member_id: MemberId
    group_instance_id: GroupInstanceId | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[JoinProtocol, ...]
    session_timer: Timer
    assignment: bytes = b""
    parked_join: Token | None = None
    """The JoinGroup that waits for the join phase to end; counted in ``Group.parked_joins``."""

    parked_sync: Token | None = None
    """The SyncGroup that waits for the leader's assignment to be durable."""

    weight: int = 0
    """Most bytes that it takes in the group's record, without its assignment."""

    knows_id: bool = True
    """Its client was told the id: it can come back with it."""

    is_new: bool = True
    """True until its first generation; such a member may expire while it is parked."""

    commits_over: ConnectionId = NO_CONNECTION
    """The latest opened of the connections over which it has committed."""

    def metadata_for(self, name: ProtocolName) -> bytes:
        """Its bytes for protocol ``name``; none if it does not offer that."""
        return next((p.metadata for p in self.protocols if p.name == name), b"")

    def vote(self, candidates: frozenset[ProtocolName]) -> ProtocolName:
        """The first of its protocols that is a candidate.

        Raises:
            InvariantViolation: it supports none, which the protocol gate excludes.
        """
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise InvariantViolation(
            f"member {self.member_id} was expected to support one of {sorted(candidates)}, "
            f"but offers {[p.name for p in self.protocols]}"
        )


@dataclass(slots=True, kw_only=True)
class InitialDelay:
    """Where the wait of a group that was Empty stands (KIP-134)."""

    delay_ms: int
    """Length of the stretch that runs now."""

    remaining_ms: int
    """How much longer newcomers may stretch it after that."""

    new_member_added: bool = False
    """Somebody beyond the first member came in this stretch."""


@dataclass(slots=True)
class OffsetWrites:
    """How many writes of one partition's offset are on their way to the log, and what they say."""

    count: int
    sent: CommittedOffset | None
    """What the last of them says; None: that nothing is committed."""

    applied: Ticket
    """The latest of them that was durable and is what readers see."""


@dataclass(slots=True, kw_only=True)
class Group:
    """A classic group. The phases change it; nothing outside this room does."""

    group_id: GroupId
    state: GroupState = GroupState.EMPTY
    generation_id: GenerationId = _NEW
    protocol_type: ProtocolType | None = None
    """None until the first member; stays when the group falls empty. None for simple groups."""

    protocol_name: ProtocolName | None = None
    """The selected protocol; None when no generation is live."""

    leader_id: MemberId | None = None
    members: dict[MemberId, Member] = field(default_factory=dict)
    """In the order of joining; the leader is one of them unless there are none."""

    static_members: dict[GroupInstanceId, MemberId] = field(default_factory=dict)
    """Agrees with ``members`` in both directions."""

    pending: dict[MemberId, Instant] = field(default_factory=dict)
    """Ids handed out and not joined with, and since when; disjoint from ``members``."""

    pending_sync: dict[MemberId, None] = field(default_factory=dict)
    """Members of this generation that have not asked for their assignment."""

    parked_joins: int = 0
    """How many members have ``parked_join`` set."""

    join_deadline: Instant = Instant(0)
    """When the join phase ends at the latest, if it is not the initial one."""

    initial: InitialDelay | None = None
    """Set while the join phase is the initial one, which never ends early by "all joined"."""

    subscribed_topics: frozenset[str] | None = None
    """Topics of the generation's subscriptions; None if unknown (bytes that do not parse)."""

    current_state_timestamp: WallMillis = NO_TIMESTAMP
    sync_write: Ticket | None = None
    """The leader's assignment on its way to the log; a later one takes its place."""

    deletion: Ticket | None = None
    """The tombstone on its way to the log; set exactly in Dead."""

    floor: GenerationId = _NEW
    """The highest generation that may have been told before the log was read back."""

    reserved: GenerationId = _NEW
    """The highest generation that a durable record reserves; only such a one is told."""

    reservation: Ticket | None = None
    """The reservation on its way to the log."""

    has_reservations: bool = False
    """Reservations are in the log, or were sent there: the group's tombstone needs company."""

    closing: bool = False
    """The join phase is over, but for its generation, which is on its way to the log."""

    renamed: dict[GroupInstanceId, MemberId] = field(default_factory=dict)
    """Static members whose present id the group's durable record may not hold."""

    renamed_reserved: dict[GroupInstanceId, MemberId] = field(default_factory=dict)
    """Those of them that the last durable reservation holds."""

    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    """Durable offsets."""

    offset_writes: dict[TopicPartition, OffsetWrites] = field(default_factory=dict)
    """Partitions whose offset is on its way to the log."""

    weight: int = 0
    """The members' weights together."""

    protocol_counts: dict[ProtocolName, int] = field(default_factory=dict)
    """How many members support a protocol."""

    story: deque[tuple[Instant, Fact]] = field(default_factory=lambda: deque(maxlen=_STORY_LENGTH))
    """The last facts about this group, for the message of an InvariantViolation."""

    # -- questions ---------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether members' bytes are subscriptions that topics can be read from."""
        return self.protocol_type == CONSUMER

    @property
    def is_unused(self) -> bool:
        """Nothing hangs on this group: it may be forgotten."""
        return not (self.members or self.pending or self.offsets or self.offset_writes)

    def all_joined(self) -> bool:
        """Every member is parked in a join."""
        return self.parked_joins == len(self.members)

    def held_until(self) -> Instant:
        """Until when handed-out ids hold a join phase open: their clients are just coming back."""
        handed_out = max(self.pending.values(), default=None)
        if handed_out is None:
            return Instant(0)
        return Instant(handed_out + PENDING_MEMBER_GRACE_MS * MICROS_PER_MILLI)

    def next_generation(self) -> GenerationId:
        """The number of the generation to come."""
        return GenerationId(max(self.generation_id, self.floor) + 1)

    def is_reserved(self) -> bool:
        """Whether the generation to come, with its static members' ids, would survive a crash."""
        if self.reserved != self.next_generation():
            return False
        return self.renamed.items() <= self.renamed_reserved.items()

    def rebalance_timeout_ms(self) -> int:
        """The longest that any member grants; 0 without members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def identify(self, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> ErrorCode:
        """Whether the sender is who it says; the generation is compared only after this."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def accepts_protocols(
        self, protocol_type: ProtocolType, protocols: tuple[JoinProtocol, ...]
    ) -> bool:
        """The protocol gate: same type, and something that every current member supports."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        everybody = len(self.members)
        return any(self.protocol_counts.get(p.name, 0) == everybody for p in protocols)

    def candidates(self) -> frozenset[ProtocolName]:
        """Protocols that every member supports."""
        everybody = len(self.members)
        return frozenset(name for name, n in self.protocol_counts.items() if n == everybody)

    def choose_protocol(self) -> ProtocolName:
        """The candidate with most first votes; on a tie the one voted for first."""
        votes = self._votes()
        return max(votes, key=lambda name: votes[name])

    def keeps_protocol(self) -> bool:
        """Whether the selected protocol would be selected again; on a tie it stays."""
        name = self.protocol_name
        if name is None or self.protocol_counts.get(name, 0) < len(self.members):
            return False
        if len(self.protocol_counts) == 1:
            return True
        votes = self._votes()
        return votes.get(name, 0) == max(votes.values())

    def _votes(self) -> dict[ProtocolName, int]:
        candidates = self.candidates()
        votes: dict[ProtocolName, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return votes

    def is_subscribed(self, topic: str) -> bool:
        """Whether a live member reads ``topic``; an unknown subscription counts as reading it."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    def metadata(self, assignments: Mapping[MemberId, bytes]) -> GroupMetadata:
        """The group's record, with the assignments given in place of the members' own."""
        name = self.protocol_name
        return GroupMetadata(
            protocol_type=self.protocol_type or ProtocolType(""),
            generation_id=self.generation_id,
            protocol_name=name,
            leader_id=self.leader_id,
            current_state_timestamp=self.current_state_timestamp,
            members=tuple(
                MemberMetadata(
                    member_id=m.member_id,
                    group_instance_id=m.group_instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    subscription=m.metadata_for(name) if name is not None else b"",
                    assignment=assignments.get(m.member_id, b""),
                )
                for m in self.members.values()
            ),
        )

    # -- changes -----------------------------------------------------------------------------

    def move_to(self, state: GroupState, at: WallMillis) -> None:
        """Enter ``state``.

        Raises:
            InvariantViolation: the table of transitions does not allow it.
        """
        if self.state not in TRANSITIONS[state]:
            raise self.violation(f"a move to {state} was expected from {TRANSITIONS[state]}")
        self.state = state
        self.current_state_timestamp = at

    def add(self, member: Member, protocol_type: ProtocolType) -> None:
        """Take in a member; the first one leads and fixes the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        member.weight = weight_of(member, member.protocols)
        self.weight += member.weight
        self.pending.pop(member.member_id, None)
        if not self.pending:
            self.pending.clear()  # a table does not shrink when its entries go

    def remove(self, member_id: MemberId) -> Member:
        """Take out a member with everything that hangs on it; its parked tokens are in the result.

        If it led, any other leads; the end of the join phase prefers one that is there.
        """
        member = self.members.pop(member_id)
        self.weight -= member.weight
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
            self.renamed.pop(member.group_instance_id, None)
        self._count(member.protocols, -1)
        self.pending_sync.pop(member_id, None)
        if member.parked_join is not None:
            self.parked_joins -= 1
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        return member

    def rename(self, member: Member, member_id: MemberId) -> None:
        """A static member's place has a new holder, who inherits everything that hangs on it."""
        instance, former = member.group_instance_id, member.member_id
        if instance is None:
            raise self.violation(f"member {former} was expected to be static")
        del self.members[former]
        member.member_id = member_id
        member.session_timer = session_timer(self.group_id, member_id)
        self.members[member_id] = member
        self.static_members[instance] = self.renamed[instance] = member_id
        if self.leader_id == former:
            self.leader_id = member_id
        if former in self.pending_sync:
            # Kafka goes on waiting for the former id, and removes it though its place synced.
            del self.pending_sync[former]
            self.pending_sync[member_id] = None

    def change_protocols(self, member: Member, protocols: tuple[JoinProtocol, ...]) -> None:
        """Replace what a member offers."""
        weight = largest(protocols) - largest(member.protocols)
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)
        self.weight += weight
        member.weight += weight

    def park_join(self, member: Member, token: Token) -> Token | None:
        """Park a JoinGroup; returns the one whose place it takes."""
        superseded, member.parked_join = member.parked_join, token
        if superseded is None:
            self.parked_joins += 1
        return superseded

    def unpark_join(self, member: Member) -> Token | None:
        """Take a member's parked JoinGroup out, if there is one."""
        token, member.parked_join = member.parked_join, None
        if token is not None:
            self.parked_joins -= 1
        return token

    def _count(self, protocols: Iterable[JoinProtocol], step: int) -> None:
        for name in dict.fromkeys([protocol.name for protocol in protocols]):
            count = self.protocol_counts.get(name, 0) + step
            if count:
                self.protocol_counts[name] = count
            else:
                del self.protocol_counts[name]

    # -- when something is wrong --------------------------------------------------------------

    def violation(self, message: str) -> InvariantViolation:
        """An exception that says which group, in what state, and what led there."""
        story = "; ".join(f"{at}: {fact}" for at, fact in self.story)
        return InvariantViolation(
            f"group {self.group_id!r} in state {self.state}, generation {self.generation_id}, "
            f"{len(self.members)} members: {message}. Story: {story or 'none'}"
        )


def weight_of(member: Member, protocols: tuple[JoinProtocol, ...]) -> int:
    """Most bytes of the group's record that a member takes with ``protocols``."""
    texts = utf8_size(member.member_id) + utf8_size(member.group_instance_id or "")
    texts += utf8_size(member.client_id) + utf8_size(member.client_host)
    return _MEMBER_OVERHEAD + texts + largest(protocols)


def largest(protocols: tuple[JoinProtocol, ...]) -> int:
    """Bytes of the longest metadata among ``protocols``."""
    if len(protocols) == 1:
        return len(protocols[0].metadata)
    return max((len(p.metadata) for p in protocols), default=0)


def utf8_size(text: str) -> int:
    """Bytes that a text takes."""
    return len(text) if text.isascii() else len(text.encode())


def metadata_size(protocols: tuple[JoinProtocol, ...]) -> int:
    """Bytes that a member offers in all, names included."""
    return sum(len(p.name) + len(p.metadata) for p in protocols)


def new_member(
    *,
    group_id: GroupId,
    member_id: MemberId,
    group_instance_id: GroupInstanceId | None,
    client_id: str,
    client_host: str,
    session_timeout_ms: int,
    rebalance_timeout_ms: int,
    protocols: tuple[JoinProtocol, ...],
    knows_id: bool = True,
) -> Member:
    """A member that has not been in a generation.

    A rebalance timeout of 0 or less becomes the session timeout. (JoinGroup v0 and records of
    version 0 have none; without the fallback such a group would close its join phase on nobody.)
    """
    return Member(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            rebalance_timeout_ms if rebalance_timeout_ms > 0 else session_timeout_ms
        ),
        protocols=protocols,
        knows_id=knows_id,
        session_timer=session_timer(group_id, member_id),
    )
