"""Changes of the world's processes by facts of the application's side.

In: a world and one fact. Out: the changed processes. Ownership begins with the start of
``on_assigned`` and ends with the end of ``on_revoked`` or ``on_lost``. Must not know: checks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kohort.history.views import ProcessView
from kohort.history.world import World
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    ClientFact,
    CommitConcluded,
    CommitSent,
    NetworkCut,
    NetworkHealed,
    PositionSet,
    ProcessKilled,
    ProcessPaused,
    ProcessResumed,
    ProcessStarted,
    ProcessStopped,
    RebalanceEnforced,
    RecordsDelivered,
    RequestSent,
    ResponseReceived,
    Subscribed,
)
from kohort.model.history_record import Recorded
from kohort.model.member_facts import GenerationJoined, PollIntervalExceeded, SessionUnconfirmed


def _process(world: World, recorded: Recorded, fact: ClientFact) -> ProcessView:
    found = world.processes.get(recorded.source)
    if found is None or found.incarnation != recorded.incarnation:
        found = world.processes[recorded.source] = ProcessView(
            source=recorded.source,
            group_id=fact.group_id,
            incarnation=recorded.incarnation,
            started_at=recorded.at,
            seen_from_start=False,
        )
    return found


def _disturb(world: World, recorded: Recorded, fact: Any) -> None:
    world.group(fact.group_id).disturbed_at = recorded.at


def _started(world: World, recorded: Recorded, fact: ProcessStarted) -> None:
    world.processes[recorded.source] = ProcessView(
        source=recorded.source,
        group_id=fact.group_id,
        incarnation=recorded.incarnation,
        started_at=recorded.at,
        seen_from_start=True,
        self_fencing=fact.self_fencing,
        auto_commit=fact.auto_commit,
        session_timeout_ms=fact.session_timeout_ms,
    )
    _disturb(world, recorded, fact)


def _ended(world: World, recorded: Recorded, fact: ProcessStopped | ProcessKilled) -> None:
    process = _process(world, recorded, fact)
    process.running = False
    process.owned.clear()
    process.owned_as.clear()
    _disturb(world, recorded, fact)


def _paused(world: World, recorded: Recorded, fact: ProcessPaused | ProcessResumed) -> None:
    _process(world, recorded, fact).paused = isinstance(fact, ProcessPaused)
    _disturb(world, recorded, fact)


def _cut(world: World, recorded: Recorded, fact: NetworkCut | NetworkHealed) -> None:
    _process(world, recorded, fact).cut = isinstance(fact, NetworkCut)
    _disturb(world, recorded, fact)


def _subscribed(world: World, recorded: Recorded, fact: Subscribed) -> None:
    _process(world, recorded, fact).topics = frozenset(fact.topics)
    _disturb(world, recorded, fact)


def _callback_started(world: World, recorded: Recorded, fact: CallbackStarted) -> None:
    process = _process(world, recorded, fact)
    if fact.member_id:
        process.member_id = fact.member_id
    if fact.kind is CallbackKind.ASSIGNED:
        for partition in fact.partitions:
            process.owned.setdefault(partition, recorded.at)
            process.owned_as[partition] = fact.member_id


def _callback_ended(world: World, recorded: Recorded, fact: CallbackEnded) -> None:
    if fact.kind is not CallbackKind.ASSIGNED:
        process = _process(world, recorded, fact)
        for partition in fact.partitions:
            process.owned.pop(partition, None)
            process.owned_as.pop(partition, None)


def _joined(world: World, recorded: Recorded, fact: GenerationJoined) -> None:
    process = world.processes.get(recorded.source)
    if process is not None and process.incarnation == recorded.incarnation:
        process.member_id = fact.member_id


def _seen(world: World, recorded: Recorded, fact: Any) -> None:
    _process(world, recorded, fact)


def _sent(world: World, recorded: Recorded, fact: RequestSent) -> None:
    world.sent[recorded.source, recorded.incarnation, fact.request] = (recorded.at, fact)


def _received(world: World, recorded: Recorded, fact: ResponseReceived) -> None:
    world.sent.pop((recorded.source, recorded.incarnation, fact.request), None)


def _commit_sent(world: World, recorded: Recorded, fact: CommitSent) -> None:
    _process(world, recorded, fact)
    world.commits[recorded.source, recorded.incarnation, fact.request] = fact


def _commit_concluded(world: World, recorded: Recorded, fact: CommitConcluded) -> None:
    world.commits.pop((recorded.source, recorded.incarnation, fact.request), None)


APPLIERS: Final[dict[type[Any], Callable[[World, Recorded, Any], None]]] = {
    ProcessStarted: _started,
    ProcessStopped: _ended,
    ProcessKilled: _ended,
    ProcessPaused: _paused,
    ProcessResumed: _paused,
    NetworkCut: _cut,
    NetworkHealed: _cut,
    Subscribed: _subscribed,
    RebalanceEnforced: _disturb,
    CallbackStarted: _callback_started,
    CallbackEnded: _callback_ended,
    GenerationJoined: _joined,
    PollIntervalExceeded: _disturb,
    SessionUnconfirmed: _disturb,
    RecordsDelivered: _seen,
    PositionSet: _seen,
    RequestSent: _sent,
    ResponseReceived: _received,
    CommitSent: _commit_sent,
    CommitConcluded: _commit_concluded,
}
