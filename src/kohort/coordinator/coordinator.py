"""The coordinator: events and instants in, effects out.

In: events. Out: effects, in the order in which they must be carried out. Must not know: the
decisions of any phase.

``handle`` first does ``advance``: deadlines that have passed are served before the event. Only
``Stalled`` comes before them. ``next_deadline`` has no visible effect. Protocol errors are answers;
an exception is a bug. Same configuration, ids and events give the same effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from kohort.coordinator import (
    joining,
    liveness,
    loading,
    new_members,
    offsets,
    removing,
    syncing,
    views,
)
from kohort.coordinator.interface import (
    Appended,
    AppendFailed,
    DeleteGroups,
    DescribeGroups,
    Effect,
    Event,
    Heartbeat,
    HeartbeatAnswer,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Loaded,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Replay,
    Stalled,
    SyncGroup,
    TimeOfDay,
    TokensDropped,
    TopicsDeleted,
)
from kohort.coordinator.invariants import check
from kohort.coordinator.rebalancing import join_timer_fired, try_complete
from kohort.coordinator.records import CommittedOffset
from kohort.coordinator.registry import MakeMemberId, Registry, Write, mapped_append_error
from kohort.coordinator.repeated_commits import CommitHandle, commit_again, commit_handle
from kohort.coordinator.timers import HOLD, JOIN, SESSION, SWEEP, Timer
from kohort.model.deadlines import Deadlines
from kohort.model.errors import InvariantViolation
from kohort.model.facts import WriteFailed
from kohort.model.group_config import GroupConfig
from kohort.model.ids import GenerationId, MemberId, Ticket, Token
from kohort.model.instants import Instant


def _appended(registry: Registry, event: Appended) -> None:
    _write_of(registry, event.ticket).stored(registry, event.ticket)


def _append_failed(registry: Registry, event: AppendFailed) -> None:
    write, error = _write_of(registry, event.ticket), event.error
    if isinstance(write, new_members.CreationWrite) and not registry.is_live(write.group):
        return  # the group is gone already, and another one may have its name
    registry.observe(WriteFailed(group_id=write.group.group_id, purpose=write.purpose, error=error))
    write.failed(registry, event.ticket, mapped_append_error(error))


def _write_of(registry: Registry, ticket: Ticket) -> Write:
    write = registry.writes.pop(ticket, None)
    if write is None:
        raise InvariantViolation(
            f"ticket {ticket} came back, but was never given out or came back before; "
            "a shell must report each ticket once"
        )
    return write


# A table, because a match of classes tests one case after the other.
_SERVE: dict[type, Callable[[Registry, Any], None]] = {
    Heartbeat: liveness.heartbeat,
    JoinGroup: joining.join,
    SyncGroup: syncing.sync,
    LeaveGroup: liveness.leave,
    OffsetCommit: offsets.commit,
    OffsetFetch: offsets.fetch,
    OffsetDelete: removing.delete_offsets,
    DescribeGroups: views.describe,
    ListGroups: views.list_groups,
    DeleteGroups: removing.delete_groups,
    TopicsDeleted: removing.topics_deleted,
    TokensDropped: liveness.tokens_dropped,
    Appended: _appended,
    AppendFailed: _append_failed,
}


class Coordinator:
    """A sans-IO coordinator of classic groups.

    Args:
        config: its settings.
        make_member_id: makes an id, never used before, from a prefix (a client id): the prefix,
            "-" and a unique part.
        deadlines: holds the timers; by default a new one.
        details: tells whether anybody wants the facts of single joins, syncs and commits.
    """

    __slots__ = ("_loading", "_registry")

    def __init__(
        self,
        config: GroupConfig,
        make_member_id: MakeMemberId,
        *,
        deadlines: Deadlines[Timer] | None = None,
        details: Callable[[], bool] = lambda: True,
    ) -> None:
        self._registry = Registry(config, make_member_id, deadlines, details)
        self._loading = loading.Loading()

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Serve an event at ``now``; returns the effects in the order to carry them out."""
        registry = self._registry
        if type(event) is Stalled:
            registry.deadlines.shift(event.micros)
        registry.now = now
        if not registry.deadlines.none_due(now):
            self._fire_due(now)
        serve = _SERVE.get(type(event))
        if serve is not None:
            serve(registry, event)
        else:
            self._take_notice(event)
        return registry.take_effects()

    def appended(self, tickets: Iterable[Ticket], now: Instant) -> list[Effect]:
        """The effects of ``handle`` for the ``Appended`` of each ticket, one after another."""
        registry = self._registry
        registry.now = now
        none_due, writes = registry.deadlines.none_due, registry.writes
        for ticket in tickets:
            if not none_due(now):
                self._fire_due(now)
            (writes.pop(ticket, None) or _write_of(registry, ticket)).stored(registry, ticket)
        return registry.take_effects()

    def heartbeat_handle(self, event: Heartbeat) -> liveness.HeartbeatHandle | None:
        """For ``beat``, if a heartbeat like ``event`` comes again; None: use ``handle``."""
        return liveness.heartbeat_handle(self._registry, event)

    def beat(self, handle: liveness.HeartbeatHandle, now: Instant) -> HeartbeatAnswer | None:
        """The answer of ``handle``, if that is its only effect; None: nothing was done.

        Most requests are heartbeats of known members while no deadline is due. For those this needs
        no event, no token, no effects, and no look-up: the entry of a table is seldom in the
        processor's cache when its member sends the next heartbeat.
        """
        registry = self._registry
        if not registry.deadlines.none_due(now):
            return None
        registry.now = now
        return liveness.beat_again(registry, handle)

    def commit_handle(self, event: OffsetCommit) -> CommitHandle | None:
        """For ``commit_again``, if a commit like ``event`` comes again; None: use ``handle``."""
        return commit_handle(self._registry, event)

    def commit_again(
        self, handle: CommitHandle, token: Token, numbers: Iterable[int], now: Instant
    ) -> tuple[Ticket, Collection[CommittedOffset]] | None:
        """Ticket and offsets of a commit with these ``numbers``, if its write is its only effect.

        None: nothing was done. All partitions of the handle must exist. Most commits repeat an
        earlier one, and need no event, no effect and no look-up.
        """
        registry = self._registry
        if not registry.deadlines.none_due(now):
            return None
        registry.now = now
        return commit_again(registry, handle, token, numbers)

    def join_again(
        self,
        event: JoinGroup,
        token: Token,
        member_id: MemberId,
        metadata: Sequence[bytes],
        now: Instant,
    ) -> bool:
        """As ``joining.join_again``, if that is all; False: nothing was done."""
        registry = self._registry
        if not registry.deadlines.none_due(now):
            return False
        registry.now = now
        return joining.join_again(registry, event, token, member_id, metadata)

    def sync_again(
        self,
        event: SyncGroup,
        token: Token,
        generation_id: GenerationId,
        member_id: MemberId,
        now: Instant,
    ) -> bytes | None:
        """As ``syncing.sync_again``, if that is all; None: nothing was done."""
        registry = self._registry
        if not registry.deadlines.none_due(now):
            return None
        registry.now = now
        return syncing.sync_again(registry, event, token, generation_id, member_id)

    def advance(self, now: Instant) -> list[Effect]:
        """Set the time to ``now``. A call too early, or a second one, does no harm."""
        self._fire_due(now)
        return self._registry.take_effects()

    def next_deadline(self) -> Instant | None:
        """When ``advance`` has something to do, or None."""
        return self._registry.deadlines.next()

    def none_due(self, at: Instant) -> bool:
        """True if ``advance`` has nothing to do at ``at``; False may mean either."""
        return self._registry.deadlines.none_due(at)

    def check(self) -> None:
        """Assert every invariant of the whole.

        Raises:
            InvariantViolation: one does not hold; a bug.
        """
        check(self._registry)

    def _take_notice(self, event: Event) -> None:
        """Serve the rare events."""
        match event:
            case TimeOfDay():
                self._registry.set_time_of_day(event.wall)
            case Replay():
                loading.replay(self._registry, self._loading, event)
            case Loaded():
                loading.finish(self._registry, self._loading)
            case Stalled():
                pass
            case _:
                raise InvariantViolation(f"{type(event).__name__} was expected to be served")

    def _fire_due(self, now: Instant) -> None:
        """Fire the due timers one by one, because one may cancel or arm others.

        A timer that is armed here counts from ``now``: a member's session starts when its answer
        leaves, not when the answer was due.
        """
        registry = self._registry
        registry.now = now
        deadlines = registry.deadlines
        while not deadlines.none_due(now):
            timer = deadlines.pop_due(now)
            if timer is None:
                return
            self._fire(timer)

    def _fire(self, timer: Timer) -> None:
        registry = self._registry
        if timer.kind == SWEEP:
            removing.sweep_timer_fired(registry)
            return
        group = registry.groups.get(timer.group_id)
        if group is None:
            raise InvariantViolation(f"{timer} fired, but there is no such group")
        if timer.kind == SESSION:
            liveness.session_timer_fired(registry, group, timer.member_id)
        elif timer.kind == JOIN:
            join_timer_fired(registry, group)
        elif timer.kind == HOLD:
            try_complete(registry, group)
        else:
            syncing.sync_timer_fired(registry, group)
