"""The shared state of all phases: groups, deadlines, writes on their way, effects of a step.

In: calls of the phases. Out: the effects of a step. Must not know: the decisions of any phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, Protocol

from kohort.coordinator.group import Group
from kohort.coordinator.interface import (
    Answer,
    Append,
    Effect,
    Heartbeat,
    Observe,
    OffsetCommit,
    Respond,
)
from kohort.coordinator.member import Member
from kohort.coordinator.records import GroupRecord, Record
from kohort.coordinator.timers import Timer
from kohort.model.deadlines import Deadlines
from kohort.model.errors import ErrorCode, InvariantViolation
from kohort.model.facts import Fact, GroupCreated, LimitReached
from kohort.model.group_config import GroupConfig
from kohort.model.ids import GroupId, MemberId, Ticket, Token
from kohort.model.instants import MICROS_PER_MILLI, Instant, WallMillis

MakeMemberId = Callable[[str], str]
"""Makes a member id that was never used: the given prefix, "-" and a unique part."""


class Write(Protocol):
    """The actions of a phase when records are durable, or when they never will be.

    Meanwhile the group may have changed, or be deleted and made again under the same id. Each write
    checks for itself whether its outcome still counts.
    """

    group: Group
    purpose: ClassVar[str]
    """The content of the records, for the fact of a failure."""

    def stored(self, registry: Registry, ticket: Ticket) -> None:
        """The records are durable."""

    def failed(self, registry: Registry, ticket: Ticket, error: ErrorCode) -> None:
        """The records will never be durable; ``error`` is for clients that wait for the outcome."""


class Registry:
    """Shared state of the phases. One step at a time, on one thread."""

    __slots__ = (
        "_effects",
        "_last_ticket",
        "_make_member_id",
        "_wall_zero",
        "config",
        "deadlines",
        "details",
        "groups",
        "join_bound",
        "loading",
        "now",
        "parked",
        "sweep_queue",
        "writes",
    )

    def __init__(
        self,
        config: GroupConfig,
        make_member_id: MakeMemberId,
        deadlines: Deadlines[Timer] | None = None,
        details: Callable[[], bool] = lambda: True,
    ) -> None:
        self.config = config
        self.join_bound = config.join_bound
        self.details = details
        """Whether anybody wants the facts that each join, sync or commit has; else none is made."""
        self.groups: dict[GroupId, Group] = {}
        self.deadlines: Deadlines[Timer] = Deadlines() if deadlines is None else deadlines
        self.writes: dict[Ticket, Write] = {}
        self.parked: dict[Token, Member] = {}
        """The member of each parked JoinGroup and SyncGroup."""
        self.now = Instant(0)
        self.loading = False
        self.sweep_queue: list[GroupId] = []
        self._make_member_id = make_member_id
        self._effects: list[Effect] = []
        self._last_ticket = 0
        self._wall_zero: int | None = None

    # -- effects -------------------------------------------------------------------------------

    def respond(self, token: Token, answer: Answer) -> None:
        """Answer a request; to be called once for each token."""
        self.parked.pop(token, None)
        self._effects.append(Respond(token, answer))

    def answer_parked(self, member: Member, token: Token, answer: Answer) -> None:
        """Answer a parked request of a member, and restart the member's session."""
        self.arm_session(member)
        del self.parked[token]
        self._effects.append(Respond(token, answer))

    def observe(self, fact: Fact) -> None:
        """Put out a fact, and keep it in its group's story."""
        group = self.groups.get(fact.group_id)
        if group is not None:
            group.story.append((self.now, fact))
        self._effects.append(Observe(fact))

    def append_group(
        self, write: Write, assignments: Mapping[MemberId, bytes] | None = None
    ) -> Ticket:
        """Send the group's own record to the log, with these assignments of its members."""
        group = write.group
        value = group.metadata(assignments or {})
        return self.append(write, (GroupRecord(group_id=group.group_id, value=value),))

    def append(self, write: Write, records: tuple[Record, ...]) -> Ticket:
        """Send records to the log; ``write`` is called with the outcome."""
        ticket = self.note(write)
        self._effects.append(Append(ticket, write.group.group_id, records))
        return ticket

    def note(self, write: Write) -> Ticket:
        """The ticket of a write; the caller sends the records to the log."""
        self._last_ticket += 1
        ticket: Ticket = self._last_ticket  # type: ignore[assignment] # Ticket(...) costs a call
        self.writes[ticket] = write
        return ticket

    def take_effects(self) -> list[Effect]:
        """The effects since the last call."""
        effects, self._effects = self._effects, []
        return effects

    # -- time ----------------------------------------------------------------------------------

    def arm(self, timer: Timer, delay_ms: int) -> None:
        """Set or replace a timer, counted from the present step."""
        self.deadlines.arm(timer, Instant(self.now + delay_ms * MICROS_PER_MILLI))

    def known_timer(self, timer: Timer) -> Timer:
        """The equal key that is armed already, or ``timer``."""
        deadline = self.deadlines.of(timer)
        return timer if deadline is None else deadline.key

    def arm_session(self, member: Member) -> None:
        """Restart the session of a member."""
        at: Instant = self.now + member.session_timeout_ms * MICROS_PER_MILLI  # type: ignore[assignment]
        # Instant(...) would cost a call with every heartbeat.
        session = member.session
        if session is None or not self.deadlines.postpone(session, at):
            member.session = self.deadlines.arm(member.session_timer, at)

    def rebalance_timeout_ms(self, group: Group) -> int:
        """The longest time of a phase: the longest rebalance timeout, limited by a setting."""
        return min(group.rebalance_timeout_ms(), self.config.max_rebalance_timeout_ms)

    def set_time_of_day(self, wall: WallMillis) -> None:
        """The wall clock shows ``wall`` at the present step."""
        self._wall_zero = wall * MICROS_PER_MILLI - self.now

    def time_of_day(self) -> WallMillis:
        """Time of day of the present step; -1 before the first ``TimeOfDay``."""
        if self._wall_zero is None:
            return WallMillis(-1)
        return (self._wall_zero + self.now) // MICROS_PER_MILLI  # type: ignore[return-value]

    # -- groups --------------------------------------------------------------------------------

    def is_live(self, group: Group) -> bool:
        """Whether the coordinator still has this very group."""
        return self.groups.get(group.group_id) is group

    def has_room(self, group_id: GroupId) -> bool:
        """Whether one more group is allowed; otherwise a fact is put out."""
        if len(self.groups) < self.config.max_groups:
            return True
        self.observe(
            LimitReached(
                group_id=group_id, setting="kohort.max.groups", limit=self.config.max_groups
            )
        )
        return False

    def adopt(self, group: Group, *, simple: bool) -> None:
        """Add a new group."""
        self.groups[group.group_id] = group
        self.observe(GroupCreated(group_id=group.group_id, simple=simple))

    def present_member(self, event: Heartbeat | OffsetCommit) -> tuple[Group, Member] | None:
        """The dynamic member of the present generation that sent a request, with its group."""
        group = self.groups.get(event.group_id)
        member = None if group is None else group.members.get(event.member_id)
        if (
            group is None
            or member is None
            or event.group_instance_id is not None
            or event.generation_id != group.generation_id
        ):
            return None
        return group, member

    def remove(self, group: Group, member_id: MemberId) -> Member:
        """Remove a member with its session; its parked tokens are in the result."""
        member = group.remove(member_id)
        self.deadlines.cancel(member.session_timer)
        return member

    def new_member_id(self, group: Group, prefix: str) -> MemberId:
        """A new member id.

        Raises:
            InvariantViolation: the maker repeated itself.
        """
        member_id = MemberId(self._make_member_id(prefix))
        if not member_id or member_id in group.members or member_id in group.pending:
            raise InvariantViolation(
                f"a fresh member id was expected for group {group.group_id!r}, but the maker gave "
                f"{member_id!r}; hand in a maker that never repeats itself"
            )
        return member_id


_CLIENT_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The client's error after the log refused a write, as in Kafka; other errors stay."""


def mapped_append_error(error: ErrorCode) -> ErrorCode:
    """The client's error after the log refused a write."""
    return _CLIENT_ERRORS.get(error, error)
