"""A busy broker_loop: requests wait in their order, heartbeats that come again pass them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kohort.broker import broker_loop as loop_module
from kohort.broker.broker_loop import BrokerLoop
from kohort.broker.limits import TURN_MICROS
from kohort.engine.coordinator_outputs import Transmit
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant


class Loop:
    """Calls wait here until the test lets a turn pass."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.soon.append(call)

    def call_later(self, delay: float, call: Callable[[], None]) -> Any:
        return None

    def turn(self) -> None:
        calls, self.soon = self.soon, []
        for call in calls:
            call()


class Engine:
    """Answers requests with their own bytes, after some time; ``beat...`` is known by its bytes."""

    has_more = False
    tells_beats = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.ended: list[int] = []

    def received(self, conn: ConnectionId, data: bytes, now: Instant) -> list[Any]:
        self.clock.now += 2_000
        if data == b"bug":
            raise ValueError(data)
        return [Transmit(conn, bytes(data)), Transmit(conn, b"")]

    def lost(self, conn: int, now: Instant) -> list[Transmit]:
        self.ended.append(conn)
        return []

    def beat(self, line: object, data: bytes, now: Instant) -> bytes | None:
        return bytes(data) if bytes(data).startswith(b"beat") else None

    def again(self, line: object, data: bytes, now: Instant) -> None:
        pass

    def none_due(self, at: Instant) -> bool:
        return True

    def next_deadline(self) -> None:
        return None


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000


class Service:
    def settle(self, now: Instant) -> None:
        pass

    def lost(self, conn: int) -> None:
        pass


class Gate:
    def leave(self, session: object) -> None:
        pass


class Client:
    """A session, as the broker loop sees one."""

    def __init__(self, conn: int, sent: list[tuple[int, bytes]]) -> None:
        self.conn, self.sent = conn, sent
        self.put_off = 0
        self.held = False
        self.open = True
        self.heard = False
        self.line = SimpleNamespace(wants_data=True)
        self.peer_host = "there"

    def close(self) -> None:
        self.open = False

    def transmit(self, data: bytes) -> None:
        if data:
            self.sent.append((self.conn, data))


class Stage:
    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = Loop()
        self.sent: list[tuple[int, bytes]] = []
        engine = Engine(self.clock)
        self.ended = engine.ended
        # Stand-ins.
        broker_loop: Any = BrokerLoop(engine, self.loop, Gate(), lambda _: None)  # type: ignore[arg-type]
        broker_loop.attach(None, Service())
        self.broker_loop = broker_loop
        self.loop.turn()
        self.clients = [Client(n, self.sent) for n in range(9)]
        broker_loop.sessions.update({c.conn: c for c in self.clients})

    def say(self, who: int, data: bytes) -> None:
        self.broker_loop.received(self.clients[who], memoryview(data))

    def rest(self) -> int:
        """Let turns pass until nothing is left; how many it took."""
        turns = 0
        while self.broker_loop._put_off:
            self.loop.turn()
            turns += 1
        return turns


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made: list[Stage] = []
    monkeypatch.setattr(loop_module, "monotonic_now", lambda: made[0].clock.now if made else 0)
    made.append(Stage())
    return made[0]


AT_ONCE = TURN_MICROS // 2_000 + 1


def test_a_turn_serves_for_a_while_and_puts_off_the_rest_in_order(stage: Stage) -> None:
    said = [(n, b"request %d" % n) for n in range(9)]
    for who, data in said:
        stage.say(who, data)
    assert stage.sent == said[:AT_ONCE]
    assert stage.rest() >= 2
    assert stage.sent == said


def test_a_heartbeat_that_comes_again_passes_what_was_put_off(stage: Stage) -> None:
    for who in range(6):
        stage.say(who, b"request")
    before = len(stage.sent)
    stage.say(7, b"beat")
    assert stage.sent[before:] == [(7, b"beat")]


def test_on_one_connection_nothing_passes(stage: Stage) -> None:
    for who in range(6):
        stage.say(who, b"request")
    stage.say(5, b"beat")
    assert (5, b"beat") not in stage.sent
    stage.rest()
    assert [data for who, data in stage.sent if who == 5] == [b"request", b"beat"]


def test_when_all_is_served_requests_are_served_at_once_again(stage: Stage) -> None:
    for who in range(6):
        stage.say(who, b"request")
    stage.rest()
    stage.loop.turn()
    stage.say(8, b"later")
    assert stage.sent[-1] == (8, b"later")


def test_requests_are_served_before_the_end_of_their_connection(stage: Stage) -> None:
    """Kafka, too, serves the requests of a closing channel: a LeaveGroup before the end counts."""
    for who in range(6):
        stage.say(who, b"request")
    for who in (0, 5):
        stage.broker_loop.closed(stage.clients[who])
    assert stage.ended == [0]
    assert 5 in stage.broker_loop.sessions
    stage.rest()
    assert [who for who, _ in stage.sent] == [0, 1, 2, 3, 4, 5]
    assert stage.ended == [0, 5]
    assert not {0, 5} & set(stage.broker_loop.sessions)


def test_a_request_that_fails_costs_its_connection_only(stage: Stage) -> None:
    for who in range(6):
        stage.say(who, b"bug" if who == 4 else b"request")
    stage.rest()
    assert [who for who, _ in stage.sent] == [0, 1, 2, 3, 5]
    assert [client.open for client in stage.clients[3:6]] == [True, False, True]


def test_more_than_fits_is_served_where_it_stands(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "PUT_OFF_BYTES", 10)
    for who in range(6):
        stage.say(who, b"request")
    assert [who for who, _ in stage.sent] == [0, 1, 2, 3, 4]
    assert stage.broker_loop._put_off_bytes == 7
