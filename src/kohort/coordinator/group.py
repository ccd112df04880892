"""One classic group: its members, its state, and the legal moves between states.

In: calls of the phases (``joining``, ``syncing``, ``liveness``, ``offsets``), which decide. Out:
the data of the group, and answers that follow from this data alone. Must not know: deadlines, the
log, other groups.

Three machines meet in a group:

- the *state*, with the legal moves ``TRANSITIONS``;
- each *member*, which is away, parked in a join, or parked in a sync;
- the *handed-out ids* (``pending``), which are no members yet and can hold up a join phase.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from kohort.coordinator.initial_delay import InitialDelay
from kohort.coordinator.interface import JoinGroup
from kohort.coordinator.member import Member, sizes_of
from kohort.coordinator.offset_table import OffsetTable
from kohort.coordinator.records import NO_TIMESTAMP, GroupMetadata, MemberMetadata
from kohort.coordinator.timers import HOLD, JOIN, SYNC, Timer, session_timer
from kohort.model.errors import NO_ERROR, ErrorCode, InvariantViolation
from kohort.model.facts import Fact
from kohort.model.group_state import EMPTY, GroupState
from kohort.model.ids import (
    NO_MEMBER,
    GenerationId,
    GroupId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    ProtocolType,
    Ticket,
    Token,
)
from kohort.model.instants import Instant, WallMillis
from kohort.model.join import JoinProtocol

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
_NEW = GenerationId(0)


@dataclass(slots=True, kw_only=True)
class Group:
    """A classic group. Only the phases change it."""

    group_id: GroupId
    state: GroupState = GroupState.EMPTY
    generation_id: GenerationId = _NEW
    protocol_type: ProtocolType | None = None
    """None until the first member, and for simple groups. It stays when the group is Empty."""

    protocol_name: ProtocolName | None = None
    """The selected protocol; None without a generation."""

    leader_id: MemberId | None = None
    members: dict[MemberId, Member] = field(default_factory=dict)
    """In the order of joining. If there are members, one of them is the leader."""

    static_members: dict[GroupInstanceId, MemberId] = field(default_factory=dict)
    """The static members of ``members``, and no others."""

    pending: dict[MemberId, int] = field(default_factory=dict)
    """Ids that were handed out and not joined with: their session timeouts, the last id last."""

    pending_sync: dict[MemberId, None] = field(default_factory=dict)
    """Members of this generation that have not asked for their assignment."""

    parked_joins: int = 0
    """How many members have ``parked_join`` set."""

    initial: InitialDelay | None = None
    """Set in the first join phase of a group that was Empty. That phase lasts its full time."""

    subscribed_topics: frozenset[str] | None = None
    """Topics of the generation's subscriptions; None if unknown (bytes that do not parse)."""

    topics_section: bytes = b""
    """The ``member.topics_section`` of a member of the generation; other members share it."""

    current_state_timestamp: WallMillis = NO_TIMESTAMP
    sync_write: Ticket | None = None
    """The leader's last assignment on its way to the log."""

    deletion: Ticket | None = None
    """The group's tombstone on its way to the log; set in Dead, and in no other state."""

    floor: GenerationId = _NEW
    """The highest generation that a member may know from before the log was read."""

    reserved: GenerationId = _NEW
    """The highest generation that a durable record reserves; members learn no higher one."""

    reservation: Ticket | None = None
    """The reservation on its way to the log."""

    has_reservations: bool = False
    """The log holds or will hold reservations, so the group's tombstone needs one for them."""

    closing: bool = False
    """The join phase is over, but the record of its generation is not durable yet."""

    renamed: dict[GroupInstanceId, MemberId] = field(default_factory=dict)
    """Static members with an id that the group's durable record may not hold."""

    renamed_reserved: dict[GroupInstanceId, MemberId] = field(default_factory=dict)
    """Those of ``renamed`` that the last durable reservation holds."""

    offsets: OffsetTable = field(default_factory=OffsetTable)
    weight: int = 0
    """The weights of all members together."""

    protocol_counts: dict[ProtocolName, int] = field(default_factory=dict)
    """How many members support a protocol."""

    story: deque[tuple[Instant, Fact]] = field(default_factory=lambda: deque(maxlen=_STORY_LENGTH))
    """The last facts about this group, for the message of an InvariantViolation."""

    join_timer: Timer = field(init=False)
    hold_timer: Timer = field(init=False)
    sync_timer: Timer = field(init=False)

    def __post_init__(self) -> None:
        self.join_timer = Timer(JOIN, self.group_id, NO_MEMBER)
        self.hold_timer = Timer(HOLD, self.group_id, NO_MEMBER)
        self.sync_timer = Timer(SYNC, self.group_id, NO_MEMBER)

    # -- questions ---------------------------------------------------------------------------

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether members' metadata are subscriptions with readable topics."""
        return self.protocol_type == CONSUMER

    @property
    def is_unused(self) -> bool:
        """No member, no handed-out id and no offset: the group may be forgotten."""
        return not (self.members or self.pending or self.offsets)

    def all_joined(self) -> bool:
        """Every member is parked in a join."""
        return self.parked_joins == len(self.members)

    def next_generation(self) -> GenerationId:
        """The number of the next generation."""
        return GenerationId(max(self.generation_id, self.floor) + 1)

    def is_reserved(self) -> bool:
        """Whether a crash would keep the next generation and the ids of its static members."""
        if self.reserved != self.next_generation():
            return False
        return self.renamed.items() <= self.renamed_reserved.items()

    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members; 0 without members."""
        return max([m.rebalance_timeout_ms for m in self.members.values()], default=0)

    def identify(self, member_id: MemberId, group_instance_id: GroupInstanceId | None) -> ErrorCode:
        """The error of a sender that is no member, or is fenced. Checked before the generation."""
        if group_instance_id is not None:
            known = self.static_members.get(group_instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return NO_ERROR if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def accepts_protocols(
        self, protocol_type: ProtocolType, protocols: tuple[JoinProtocol, ...]
    ) -> bool:
        """Whether the type is the group's, and every current member supports one of these."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        counts, everybody = self.protocol_counts, len(self.members)
        for name, _ in protocols:  # noqa: SIM110 - a generator costs more than the search
            if counts.get(name, 0) == everybody:
                return True
        return False

    def candidates(self) -> frozenset[ProtocolName]:
        """Protocols that every member supports."""
        everybody = len(self.members)
        return frozenset([name for name, n in self.protocol_counts.items() if n == everybody])

    def choose_protocol(self) -> ProtocolName:
        """The candidate with most first votes; on a tie the one that was voted for first."""
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
        if len(candidates) == 1:
            return dict.fromkeys(candidates, len(self.members))
        votes: dict[ProtocolName, int] = {}
        for member in self.members.values():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return votes

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to ``topic``; an unknown subscription counts as yes."""
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        return self.uses_consumer_protocol

    def metadata(self, assignments: Mapping[MemberId, bytes]) -> GroupMetadata:
        """The group's record, with ``assignments`` in place of the members' own."""
        name = self.protocol_name
        return GroupMetadata(
            protocol_type=self.protocol_type or ProtocolType(""),
            generation_id=self.generation_id,
            protocol_name=name,
            leader_id=self.leader_id,
            current_state_timestamp=self.current_state_timestamp,
            members=tuple(
                [
                    MemberMetadata(  # by position: all fields in their order
                        m.member_id,
                        m.group_instance_id,
                        m.client_id,
                        m.client_host,
                        m.rebalance_timeout_ms,
                        m.session_timeout_ms,
                        m.metadata_for(name) if name is not None else b"",
                        assignments.get(m.member_id, b""),
                    )
                    for m in self.members.values()
                ]
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
        """Add a member. The first member leads and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self._count(member.protocols, 1)
        self.weight += member.weight
        self.pending.pop(member.member_id, None)
        if not self.pending:
            self.pending.clear()  # a table does not shrink when its entries go

    def remove(self, member_id: MemberId) -> Member:
        """Remove a member with all its data; its parked tokens are in the result.

        If it led, any other member leads. The end of the join phase prefers one that has joined.
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
        """Give a static member a new id; its data stays."""
        instance, former = member.group_instance_id, member.member_id
        if instance is None:
            raise self.violation(f"member {former} was expected to be static")
        del self.members[former]
        member.member_id = member_id
        member.session_timer = session_timer(self.group_id, member_id)
        member.session = None
        self.members[member_id] = member
        self.static_members[instance] = self.renamed[instance] = member_id
        if self.leader_id == former:
            self.leader_id = member_id
        if former in self.pending_sync:
            # Kafka goes on waiting for the former id, and removes the member though it has synced.
            del self.pending_sync[former]
            self.pending_sync[member_id] = None

    def update(self, member: Member, event: JoinGroup) -> None:
        """Replace timeouts and protocols of a known member by those of its JoinGroup."""
        if member.protocols != event.protocols:
            self.change_protocols(member, event.protocols)
        if (
            member.session_timeout_ms != event.session_timeout_ms
            or member.rebalance_timeout_ms != event.rebalance_timeout_ms
        ):
            member.set_timeouts(event.session_timeout_ms, event.rebalance_timeout_ms)

    def change_protocols(self, member: Member, protocols: tuple[JoinProtocol, ...]) -> None:
        """Replace the protocols of a member."""
        former, member.protocols = member.protocols, protocols
        alike = len(former) == len(protocols) == 1 and former[0].name == protocols[0].name
        if not alike and [name for name, _ in former] != [name for name, _ in protocols]:
            self._count(former, -1)
            self._count(protocols, 1)
        _, longest = sizes_of(protocols)
        weight, member.longest = longest - member.longest, longest
        self.weight += weight
        member.weight += weight

    def park_join(self, member: Member, token: Token) -> Token | None:
        """Park a JoinGroup; returns the one that was parked before."""
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
        """An exception with the group's id, state and last facts."""
        story = "; ".join(f"{at}: {fact}" for at, fact in self.story)
        return InvariantViolation(
            f"group {self.group_id!r} in state {self.state}, generation {self.generation_id}, "
            f"{len(self.members)} members: {message}. Story: {story or 'none'}"
        )
