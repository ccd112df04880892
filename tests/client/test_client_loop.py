"""The client's sockets: slow DNS, hosts with several addresses, addresses without an answer."""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.connections.client_loop import ClientLoop
from kohort.client.connections.opening import Opening, Transport
from kohort.client.errors import BrokerUnreachable
from kohort.client.membership import GroupMembership
from kohort.engine.connections import Bytes, Loss
from kohort.engine.member_outputs import Connect, Output
from kohort.model.errors import AuthenticationError
from kohort.model.ids import ConnectionId
from kohort.model.instants import Instant
from kohort.model.memory import plain_memory
from kohort.wire.codec import FrameSplitter

Row = tuple[Any, ...]


@pytest.fixture
def dns(monkeypatch: pytest.MonkeyPatch) -> dict[str, Callable[[], list[Row]]]:
    """The addresses of hosts, by name; other names are looked up as always."""
    names: dict[str, Callable[[], list[Row]]] = {}
    plain = socket.getaddrinfo

    def look_up(host: str, *args: Any, **more: Any) -> Any:
        if host not in names:
            return plain(host, *args, **more)
        if more.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not a number")
        return names[host]()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


def row(host: str, port: int) -> Row:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = (host, port, 0, 0) if ":" in host else (host, port)
    return family, socket.SOCK_STREAM, 0, "", address


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port at which connections get no answer: the queue of its listener is full."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        while True:
            waiting = stack.enter_context(socket.socket())
            waiting.settimeout(0.3)
            try:
                waiting.connect(server.getsockname())
            except TimeoutError:
                break
        yield server.getsockname()[1]


def port_of(broker: EmbeddedBroker) -> int:
    return int(broker.bootstrap_servers.rpartition(":")[2])


def test_a_member_joins_and_beats_while_the_name_of_another_server_is_looked_up(
    kohort_broker: EmbeddedBroker, dns: dict[str, Callable[[], list[Row]]]
) -> None:
    answered = threading.Event()

    def slow() -> list[Row]:
        answered.wait(60)
        raise socket.gaierror(socket.EAI_NONAME, "name not known")

    dns["slow.test"] = slow
    with Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
    servers = f"slow.test:9092,{kohort_broker.bootstrap_servers}"
    try:
        with GroupMembership(
            ["t"],
            bootstrap_servers=servers,
            group_id="g",
            socket_connection_setup_timeout_ms=300,
            heartbeat_interval_ms=100,
        ) as member:
            until(lambda: member.snapshot().owned, "partitions are assigned")
            joined = member.snapshot().confirmed_at
            until(lambda: member.snapshot().confirmed_at != joined, "a heartbeat was answered")
            assert not answered.is_set()
    finally:
        answered.set()


def test_every_address_of_a_host_is_tried(
    kohort_broker: EmbeddedBroker, dns: dict[str, Callable[[], list[Row]]]
) -> None:
    port = port_of(kohort_broker)
    dns["two.test"] = lambda: [row("::1", port), row("127.0.0.1", port)]
    with Admin(bootstrap_servers=f"two.test:{port}") as admin:
        admin.create_topic("t", 1)
    with GroupMembership(["t"], bootstrap_servers=f"two.test:{port}", group_id="g") as member:
        until(lambda: member.snapshot().owned, "partitions are assigned")


def test_an_address_without_an_answer_delays_the_next_one_by_a_quarter_of_a_second(
    kohort_broker: EmbeddedBroker, dns: dict[str, Callable[[], list[Row]]], silent_port: int
) -> None:
    dns["two.test"] = lambda: [
        row("127.0.0.1", silent_port),
        row("127.0.0.1", port_of(kohort_broker)),
    ]
    with Admin(bootstrap_servers="two.test:1") as admin:
        started = time.monotonic()
        assert admin.describe_cluster().brokers
        assert 0.25 <= time.monotonic() - started < 9, "the connection timeout is 10 s"


def test_a_name_that_is_not_known_is_named_in_the_error(
    dns: dict[str, Callable[[], list[Row]]],
) -> None:
    def unknown() -> list[Row]:
        raise socket.gaierror(socket.EAI_NONAME, "name not known")

    dns["nowhere.test"] = unknown
    admin = Admin(bootstrap_servers="nowhere.test:1", socket_connection_setup_timeout_ms=1_000)
    with pytest.raises(BrokerUnreachable, match=r"cannot resolve nowhere\.test: name not known"):
        admin.topics()
    admin.close()


class PlainEngine:
    """Splits what one connection brings into frames."""

    def __init__(self, port: int) -> None:
        self.wish = Connect(conn=ConnectionId(1), host="127.0.0.1", port=port)
        self.splitter = FrameSplitter(memory=plain_memory)
        self.is_connected = False
        self.frames: list[bytes] = []
        self.pieces: list[int] = []

    def room(self, conn: ConnectionId) -> memoryview | None:
        return self.splitter.room()

    def connected(self, conn: ConnectionId, now: Instant) -> list[Output]:
        self.is_connected = True
        return []

    def received(self, conn: ConnectionId, data: Bytes, now: Instant) -> list[Output]:
        self.pieces.append(len(data))
        self.frames += map(bytes, self.splitter.feed(data))
        return []

    def lost(
        self, conn: ConnectionId, now: Instant, reason: str = "", loss: Loss = Loss.BROKEN
    ) -> list[Output]:
        raise AssertionError(reason)

    def stalled(self, micros: int, now: Instant) -> list[Output]:
        return []

    def advance(self, now: Instant) -> list[Output]:
        return []

    def next_deadline(self) -> Instant | None:
        return None

    def close(self, now: Instant) -> list[Output]:
        return []


class NoOwner:
    """Has no work."""

    def take(self, output: Output, now: Instant) -> list[Output]:
        raise AssertionError(output)

    def advance(self, now: Instant) -> list[Output]:
        return []

    def next_deadline(self) -> Instant | None:
        return None

    def broken(self, error: BaseException) -> None:
        raise error


def test_a_large_answer_comes_in_few_pieces_and_small_ones_behind_it_at_once() -> None:
    bodies = [bytes(2_000_000), b"small", bytes(300_000), b"x" * 65_000, b"last"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        engine = PlainEngine(server.getsockname()[1])
        loop = ClientLoop(engine, NoOwner(), name="test", room=engine.room)
        loop.order(lambda now: (None, [engine.wish]))
        loop.run_until(lambda: engine.is_connected)
        peer, _ = server.accept()
        with peer:

            def send() -> None:
                for body in bodies:
                    frame = struct.pack(">i", len(body)) + body
                    for at in range(0, len(frame), 30_000):
                        peer.sendall(frame[at : at + 30_000])

            thread = threading.Thread(target=send)
            thread.start()
            loop.run_until(lambda: len(engine.frames) == len(bodies))
            thread.join()
            # The low-water mark is that of a small answer again.
            peer.sendall(struct.pack(">i", 1) + b"!")
            loop.run_until(lambda: len(engine.frames) > len(bodies))
            loop.stop(5)
    assert engine.frames == [*bodies, b"!"]
    assert len(engine.pieces) < 40, "not one for each 30,000 bytes"


@pytest.mark.parametrize(
    ("numbers", "loss"),
    [
        ([errno.ECONNREFUSED, errno.ECONNREFUSED], Loss.REFUSED),
        ([errno.ECONNREFUSED, errno.EHOSTUNREACH], Loss.BROKEN),
        ([errno.EHOSTUNREACH, errno.ECONNREFUSED], Loss.BROKEN),
    ],
)
def test_a_host_refuses_only_if_all_its_addresses_do(numbers: list[int], loss: Loss) -> None:
    with selectors.DefaultSelector() as selector:
        opening = Opening(ConnectionId(1), "host", Transport(), selector)
        for number in numbers:
            opening._note(number)
    assert opening.loss is loss


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EHOSTUNREACH])
def test_a_denied_login_stays_the_cause_if_another_address_fails(number: int) -> None:
    with selectors.DefaultSelector() as selector:
        opening = Opening(ConnectionId(1), "host", Transport(), selector)
        opening.fail(AuthenticationError("the login failed"), Instant(0))
        opening._note(number)
    assert opening.loss is Loss.DENIED
