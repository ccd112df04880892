"""A recorded engine behaves like an unrecorded engine, and reports its facts."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeVar

from tests.engine.pair import World
from tests.engine.recorded_pair import RecordedWorld

from kohort.engine.coordinator_outputs import Observed, Output
from kohort.model.errors import ErrorCode
from kohort.model.history_record import COORDINATOR_FACTS, AnyFact
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant
from kohort.model.wire_facts import (
    AnswerSent,
    CoordinatorBooted,
    GroupApi,
    PersistBegun,
    PersistOk,
    RequestReceived,
    RequestUnreadable,
    SyncTold,
    TimerChange,
    TimerChanged,
    WireFact,
)

W = TypeVar("W", bound=World)


def live(world: W) -> W:
    """Three members; one commits and leaves, one dies, one comes later."""
    a, b, c = [world.client(name).join() for name in "abc"]
    world.until(lambda: world.settled(a, b, c), within_ms=20_000)
    a.commit()
    world.run(5_000)
    a.leave()
    d = world.client("d").join()
    world.until(lambda: world.settled(b, c, d), within_ms=20_000)
    b.kill()
    world.run(70_000)
    assert world.settled(c, d)
    return world


class Listening(World):
    """The plain engine, with the facts that it observes."""

    def __init__(self, **config: Any) -> None:
        self.observed: list[tuple[Instant, AnyFact]] = []
        super().__init__(**config)

    def broker(self, outputs: list[Output]) -> None:
        self.observed += [(o.at, o.fact) for o in outputs if isinstance(o, Observed)]
        super().broker(outputs)


def test_recording_changes_nothing_else() -> None:
    plain, recorded = live(Listening()), live(RecordedWorld())
    seen = [(r.at, r.fact) for r in recorded.history if isinstance(r.fact, COORDINATOR_FACTS)]
    assert seen == plain.observed
    assert not any(isinstance(fact, WireFact) for _, fact in plain.observed)


def test_every_request_and_every_write_is_paired() -> None:
    facts = [r.fact for r in live(RecordedWorld()).history]
    asked = Counter(f.token for f in facts if isinstance(f, RequestReceived))
    told = Counter(f.token for f in facts if isinstance(f, AnswerSent))
    assert set(asked.values()) == set(told.values()) == {1}
    assert asked.keys() == told.keys()
    begun = [f.ticket for f in facts if isinstance(f, PersistBegun)]
    assert begun == [f.ticket for f in facts if isinstance(f, PersistOk)]
    assert {f.api for f in facts if isinstance(f, RequestReceived)} >= {
        GroupApi.JOIN_GROUP,
        GroupApi.SYNC_GROUP,
        GroupApi.HEARTBEAT,
        GroupApi.LEAVE_GROUP,
        GroupApi.OFFSET_COMMIT,
    }
    assert isinstance(facts[0], CoordinatorBooted)


def test_the_recorded_answer_equals_the_sent_answer() -> None:
    facts = [r.fact for r in live(RecordedWorld()).history]
    synced = [f for f in facts if isinstance(f, AnswerSent) and f.api is GroupApi.SYNC_GROUP]
    assert all(isinstance(f.body, SyncTold) for f in synced if f.error is ErrorCode.NONE)
    assert any(f.error is ErrorCode.NONE for f in synced)


def test_timer_changes_are_recorded() -> None:
    timers = [r.fact for r in live(RecordedWorld()).history if isinstance(r.fact, TimerChanged)]
    assert {(t.timer, t.change) for t in timers} >= {
        ("session", TimerChange.SET),
        ("session", TimerChange.FIRED),
        ("session", TimerChange.CANCELLED),
        ("join", TimerChange.SET),
        ("sync", TimerChange.CANCELLED),
    }


def test_unreadable_requests_are_recorded() -> None:
    world = RecordedWorld()
    world.engine.connected(ConnectionId(99), "127.0.0.1", world.now)
    outputs = world.engine.received(
        ConnectionId(99), b"\x00\x00\x00\x04\xff\xff\xff\xff", world.now
    )
    facts = [o.fact for o in outputs if isinstance(o, Observed)]
    assert any(isinstance(f, RequestUnreadable) and f.connection == 99 for f in facts)
