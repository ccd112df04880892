"""A coordinator's engine that also emits the facts of a history.

In and out: as ``CoordinatorEngine``, plus ``Observed`` outputs for requests, answers, writes,
starts and, on request, timers. The class is separate so that the other engine pays nothing for
recording. Must not know: files, checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from kohort.coordinator.coordinator import Coordinator
from kohort.coordinator.interface import Append, Effect, Heartbeat, Request, Respond
from kohort.coordinator.timers import JOIN, SESSION, SYNC, Timer
from kohort.engine.coordinator_connection import Connection, LastHeartbeat
from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_notes import note_of_write, notes_of_answer, notes_of_request
from kohort.engine.coordinator_outputs import Observed, Output
from kohort.engine.known_requests import Data
from kohort.model.deadlines import Deadline, Deadlines
from kohort.model.errors import ErrorCode
from kohort.model.group_config import GroupConfig
from kohort.model.ids import ConnectionId, GroupId, Ticket, Token
from kohort.model.instants import MICROS_PER_MILLI, Instant, WallMillis
from kohort.model.wire_facts import (
    CoordinatorBooted,
    CoordinatorStalled,
    PersistBegun,
    PersistFailed,
    PersistOk,
    RequestReceived,
    RequestUnreadable,
    TimerChange,
    TimerChanged,
    WireFact,
)

_TIMER_NAMES = {SESSION: "session", JOIN: "join", SYNC: "sync"}


class WatchedDeadlines(Deadlines[Timer]):
    """Deadlines of a coordinator that report each change of a timer."""

    __slots__ = ("_tell",)

    def __init__(self, tell: Callable[[TimerChanged], None]) -> None:
        super().__init__()
        self._tell = tell

    def arm(self, key: Timer, at: Instant) -> Deadline[Timer]:
        """As ``Deadlines.arm``."""
        deadline = super().arm(key, at)
        self._note(key, TimerChange.SET, at)
        return deadline

    def postpone(self, deadline: Deadline[Timer], at: Instant) -> bool:
        """Nothing is done, so that the caller arms the key and the change is reported."""
        return False

    def cancel(self, key: Timer) -> bool:
        """As ``Deadlines.cancel``; reports only timers that were set."""
        was_set = super().cancel(key)
        if was_set:
            self._note(key, TimerChange.CANCELLED)
        return was_set

    def pop_due(self, now: Instant) -> Timer | None:
        """As ``Deadlines.pop_due``."""
        key = super().pop_due(now)
        if key is not None:
            self._note(key, TimerChange.FIRED)
        return key

    def _note(self, key: Timer, change: TimerChange, due: Instant | None = None) -> None:
        name = _TIMER_NAMES.get(key.kind)
        if name is not None:
            self._tell(
                TimerChanged(
                    group_id=key.group_id,
                    timer=name,
                    change=change,
                    member_id=key.member_id,
                    due=due,
                )
            )


class RecordingCoordinatorEngine(CoordinatorEngine):
    """A ``CoordinatorEngine`` with additional ``Observed`` outputs.

    Args:
        record_timers: also record timers; each heartbeat sets one.

    The other arguments are ``CoordinatorEngine``'s.
    """

    tells_beats = True

    def __init__(
        self,
        config: GroupConfig,
        make_member_id: Callable[[str], str],
        *,
        record_timers: bool = False,
        **more: Any,
    ) -> None:
        self._record_timers = record_timers
        self._asked: dict[Token, list[RequestReceived]] = {}
        self._written: dict[Ticket, GroupId] = {}
        self._timer_notes: list[TimerChanged] = []
        self._replayed = 0
        self._told_at = Instant(0)
        super().__init__(config, make_member_id, **more)

    def replay(
        self, records: Iterable[tuple[bytes | None, bytes | None]], now: Instant
    ) -> list[Output]:
        """As ``CoordinatorEngine.replay``."""
        return super().replay(self._counted(records), now)

    def loaded(self, now: Instant) -> list[Output]:
        """As ``CoordinatorEngine.loaded``; records the start before the loaded groups."""
        settings = tuple(
            (f.metadata["name"], getattr(self._config, f.name)) for f in fields(self._config)
        )
        self._tell(CoordinatorBooted(records=self._replayed, settings=settings), now)
        return super().loaded(now)

    def received(
        self, conn: ConnectionId, data: bytes | bytearray | memoryview, now: Instant
    ) -> list[Output]:
        """As ``CoordinatorEngine.received``."""
        self._told_at = now
        outputs = super().received(conn, data, now)
        # Facts of a heartbeat that took the short way are still among the outputs.
        return [*self._take_outputs(), *outputs] if self._outputs else outputs

    def again(self, known: Connection, data: Data, now: Instant) -> None:
        """Nothing is done: the facts of a request need its event."""

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        """As ``CoordinatorEngine.stalled``."""
        self._tell(CoordinatorStalled(micros=micros), now)
        return super().stalled(micros, now)

    def appended(self, ticket: Ticket, now: Instant) -> list[Output]:
        """As ``CoordinatorEngine.appended``."""
        # Overdue timers are handled before the write, also in the history.
        self._run(self._coordinator.advance(now), now)
        group_id = self._written.pop(ticket, None)
        if group_id is not None:  # else the base class raises the error
            self._tell(PersistOk(group_id=group_id, ticket=ticket), now)
        return super().appended(ticket, now)

    def all_appended(self, tickets: Iterable[Ticket], now: Instant) -> list[Output]:
        """As ``CoordinatorEngine.all_appended``."""
        return [output for ticket in tickets for output in self.appended(ticket, now)]

    def append_failed(self, ticket: Ticket, error: ErrorCode, now: Instant) -> list[Output]:
        """As ``CoordinatorEngine.append_failed``."""
        self._run(self._coordinator.advance(now), now)
        self._tell_failed(ticket, error, now)
        return super().append_failed(ticket, error, now)

    # -- inside --------------------------------------------------------------------------------

    def _make_coordinator(
        self,
        config: GroupConfig,
        make_member_id: Callable[[str], str],
        details: Callable[[], bool],
    ) -> Coordinator:
        if not self._record_timers:
            return super()._make_coordinator(config, make_member_id, details)
        watched = WatchedDeadlines(self._timer_notes.append)
        return Coordinator(config, make_member_id, deadlines=watched, details=details)

    def _serve(
        self, known: Connection, event: Request, version: int, correlation_id: int, now: Instant
    ) -> None:
        # Overdue timers come first, since they are not effects of this request.
        self._run(self._coordinator.advance(now), now)
        self._asked[event.token] = asked = notes_of_request(
            event,
            version=version,
            connection=known.id,
            correlation_id=correlation_id,
        )
        for note in asked:
            self._tell(note, now)
        super()._serve(known, event, version, correlation_id, now)

    def _beat_again(
        self, known: Connection, beat: LastHeartbeat, frame: bytes, now: Instant
    ) -> bytes | None:
        """As ``CoordinatorEngine._beat_again``; the facts stay among the outputs."""
        if self._record_timers or self._dropped or not beat.is_again(frame):
            return None
        answer = self._coordinator.beat(beat, now)
        if answer is None:
            return None
        event = Heartbeat(
            token=Token(self._next_token()),
            group_id=beat.group.group_id,
            generation_id=beat.generation_id,
            member_id=beat.member.member_id,
            group_instance_id=None,
        )
        asked = notes_of_request(
            event,
            version=beat.version,
            connection=known.id,
            correlation_id=beat.correlation_id(frame),
        )
        notes: list[WireFact] = [*asked, *notes_of_answer(answer, asked)]
        for note in notes:
            self._tell(note, now)
        return beat.response(frame, answer)

    def _run(self, effects: list[Effect], now: Instant) -> None:
        self._tell_timers(now)
        for effect in self._filter.made_whole(effects):
            if type(effect) is Respond:
                asked = self._asked.pop(effect.token, [])
                for note in notes_of_answer(effect.answer, asked):
                    self._tell(note, now)
            super()._run([effect], now)

    def _append(self, effect: Append, now: Instant) -> None:
        note: PersistBegun = note_of_write(effect)
        self._written[effect.ticket] = effect.group_id
        self._tell(note, now)
        super()._append(effect, now)

    def _too_large(self, effect: Append, now: Instant) -> None:
        self._tell_failed(effect.ticket, ErrorCode.MESSAGE_TOO_LARGE, now)
        super()._too_large(effect, now)

    def _close(self, known: Connection, reason: str) -> None:
        self._tell(RequestUnreadable(connection=known.id, reason=reason), self._told_at)
        super()._close(known, reason)

    def _tell_failed(self, ticket: Ticket, error: ErrorCode, now: Instant) -> None:
        group_id = self._written.pop(ticket, None)
        if group_id is not None:
            self._tell(PersistFailed(group_id=group_id, ticket=ticket, error=error), now)

    def _tell_timers(self, now: Instant) -> None:
        if self._timer_notes:
            notes, self._timer_notes[:] = list(self._timer_notes), []
            for note in notes:
                self._tell(note, now)

    def _tell(self, fact: WireFact, now: Instant) -> None:
        self._told_at = now
        wall = WallMillis((self._wall_zero + now) // MICROS_PER_MILLI)
        self._outputs.append(Observed(fact, now, wall))

    def _counted(
        self, records: Iterable[tuple[bytes | None, bytes | None]]
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        for record in records:
            self._replayed += 1
            yield record
