"""The one public door of the coordinator: events and instants in, effects out.

Lives here: the order of things in a step, and who serves which event or timer. Goes out: effects,
in the order in which they must be carried out. Must not know: what any phase does.

The contract: ``handle`` first does ``advance``, so that no event overtakes a deadline that has
passed; only ``Stalled`` is taken before. ``next_deadline`` changes nothing that can be seen.
Protocol errors are answers; an exception is a bug. Same configuration, ids and events, same
effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from kohort.coordinator import joining, liveness, loading, offsets, removing, syncing, views
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
from kohort.coordinator.rebalancing import join_timer_fired
from kohort.coordinator.registry import MakeMemberId, Registry, Write
from kohort.coordinator.timers import JOIN, SESSION, SYNC, Timer
from kohort.model.deadlines import Deadlines
from kohort.model.errors import InvariantViolation
from kohort.model.group_config import GroupConfig
from kohort.model.ids import Ticket
from kohort.model.instants import Instant


def _appended(registry: Registry, event: Appended) -> None:
    _write_of(registry, event.ticket).stored(registry, event.ticket)


def _append_failed(registry: Registry, event: AppendFailed) -> None:
    _write_of(registry, event.ticket).failed(registry, event.ticket, event.error)


def _write_of(registry: Registry, ticket: Ticket) -> Write:
    write = registry.writes.pop(ticket, None)
    if write is None:
        raise InvariantViolation(
            f"ticket {ticket} came back, but was never given out or came back before; "
            "a shell must report each ticket once"
        )
    return write


# A table instead of a match: a heartbeat is served thousands of times a second, and a match of
# classes asks each case in turn.
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
            "-" and something unique.
        deadlines: where its timers live; somebody who watches them hands in his own.
    """

    __slots__ = ("_loading", "_registry")

    def __init__(
        self,
        config: GroupConfig,
        make_member_id: MakeMemberId,
        *,
        deadlines: Deadlines[Timer] | None = None,
    ) -> None:
        self._registry = Registry(config, make_member_id, deadlines)
        self._loading = loading.Loading()

    def handle(self, event: Event, now: Instant) -> list[Effect]:
        """Let something happen at ``now``; effects in the order they must be carried out."""
        registry = self._registry
        if type(event) is Stalled:
            registry.deadlines.shift(event.micros)
        self._fire_due(now)
        serve = _SERVE.get(type(event))
        if serve is not None:
            serve(registry, event)
        else:
            self._take_notice(event)
        return registry.take_effects()

    def appended(self, tickets: Iterable[Ticket], now: Instant) -> list[Effect]:
        """What ``handle`` gives for the ``Appended`` of each, one after another."""
        registry = self._registry
        for ticket in tickets:
            self._fire_due(now)
            _write_of(registry, ticket).stored(registry, ticket)
        return registry.take_effects()

    def heartbeat_handle(self, event: Heartbeat) -> liveness.HeartbeatHandle | None:
        """For ``beat``, when a heartbeat like ``event`` comes again; None: it is to be handled."""
        return liveness.heartbeat_handle(self._registry, event)

    def beat(self, handle: liveness.HeartbeatHandle, now: Instant) -> HeartbeatAnswer | None:
        """What ``handle`` would answer, if that is all it would do; None: nothing has happened.

        Most of what a coordinator is asked is a heartbeat of a member that lives, while nothing
        is due. This is the short way for it: no event, no token, no effects, and nothing looked
        up, since a table's entry is seldom in the processor's cache when its member beats again.
        """
        registry = self._registry
        if not registry.deadlines.none_due(now):
            return None
        registry.now = now
        return liveness.beat_again(registry, handle)

    def advance(self, now: Instant) -> list[Effect]:
        """Let the time be ``now``. Too early or twice is harmless."""
        self._fire_due(now)
        return self._registry.take_effects()

    def next_deadline(self) -> Instant | None:
        """When ``advance`` has something to do, or None."""
        return self._registry.deadlines.next()

    def none_due(self, at: Instant) -> bool:
        """Whether ``advance`` has nothing to do at ``at``; False says nothing."""
        return self._registry.deadlines.none_due(at)

    def check(self) -> None:
        """Assert every invariant of the whole.

        Raises:
            InvariantViolation: one does not hold; a bug.
        """
        check(self._registry)

    def _take_notice(self, event: Event) -> None:
        """Events that nobody waits on an answer to."""
        match event:
            case TimeOfDay():
                self._registry.set_time_of_day(event.wall)
            case Replay():
                loading.replay(self._registry, self._loading, event)
            case Loaded():
                loading.finish(self._registry, self._loading)
            case Stalled():
                pass
            case (
                Heartbeat()
                | JoinGroup()
                | SyncGroup()
                | LeaveGroup()
                | OffsetCommit()
                | OffsetFetch()
                | OffsetDelete()
                | DescribeGroups()
                | ListGroups()
                | DeleteGroups()
                | TopicsDeleted()
                | TokensDropped()
                | Appended()
                | AppendFailed()
            ):
                raise InvariantViolation(f"{type(event).__name__} was expected to be served")
            case _:
                assert_never(event)

    def _fire_due(self, now: Instant) -> None:
        """Fire what is due, each by itself, since one may cancel or arm others.

        Timers armed by one that fires late count from ``now``: a member's session starts when its
        answer leaves, not when it should have left.
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
        if timer.kind not in {SESSION, JOIN, SYNC}:
            removing.sweep_timer_fired(registry)
            return
        group = registry.groups.get(timer.group_id)
        if group is None:
            raise InvariantViolation(f"{timer} fired, but there is no such group")
        if timer.kind == SESSION:
            liveness.session_timer_fired(registry, group, timer.member_id)
        elif timer.kind == JOIN:
            join_timer_fired(registry, group)
        else:
            syncing.sync_timer_fired(registry, group)
