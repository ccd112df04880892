"""Limits of one client: connections, partial requests, unread answers, idle time."""

from __future__ import annotations

import contextlib
import resource
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from tests.broker.conftest import Connect, loop_of

from kohort.broker.embedded import EmbeddedBroker
from kohort.broker.listener import connections_that_fit
from kohort.broker.session import Session
from kohort.broker.sweeps import Chores, IdleSweep, SlowFrameSweep
from kohort.host.settings import INT_MAX, BrokerSettings
from kohort.model.deadlines import Deadlines
from kohort.model.instants import Instant, Millis, after
from kohort.wire.messages import k18_api_versions

FINE = k18_api_versions.ApiVersionsRequest()
SOON_S = 20.0


def test_defaults_are_kafkas_and_none_is_below_ten_thousand_connections() -> None:
    settings = BrokerSettings()
    assert settings.max_connections == settings.max_connections_per_ip == INT_MAX
    assert settings.connections_max_idle_ms == 600_000
    assert settings.socket_request_max_bytes == 100 * 1024 * 1024


@pytest.mark.parametrize(
    ("files", "logs", "fit"),
    [
        (20_000, 50, 20_000 - 256 - 50 * 6),
        (20_000, 5_000, 17_500),
        (1_024, 50, 896),
        (40, 50, 8),
        (10, 50, 1),
    ],
)
def test_connections_leave_open_files_for_the_logs(
    monkeypatch: pytest.MonkeyPatch, files: int, logs: int, fit: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert connections_that_fit(INT_MAX, logs) == fit
    assert connections_that_fit(5, logs) == min(5, fit)


def test_new_logs_take_open_files_from_connections_and_the_offsets_topic_has_its_own_from_the_start(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 20_000))
    broker = kohort_broker_factory(offsets_topic_num_partitions=7)
    most = loop_of(broker)._gate._most
    assert most() == 20_000 - 256 - 7 * 6
    client = connect(broker)
    client.become_member("g")  # makes the offsets topic
    assert most() == 20_000 - 256 - 7 * 6
    client.create("t", partitions=10)
    assert most() == 20_000 - 256 - 17 * 6


def test_without_a_bound_of_open_files_the_setting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert connections_that_fit(INT_MAX, logs=50) == INT_MAX


def test_connections_of_one_address_are_bounded(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    broker = kohort_broker_factory(max_connections_per_ip=1)
    assert connect(broker).ask(FINE).error_code == 0
    assert connect(broker).hung_up()


def test_a_flood_of_connections_is_logged_without_filling_the_log(
    kohort_broker_factory: Callable[..., EmbeddedBroker],
    connect: Connect,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = kohort_broker_factory(max_connections=1)
    first = connect(broker)
    assert first.ask(FINE).error_code == 0
    began = time.monotonic()
    for _ in range(30):
        assert connect(broker).hung_up()
    lines = [line for line in caplog.messages if "refusing a connection" in line]
    assert "allowed are 1 and 2147483647" in lines[0]
    assert len(lines) <= 1 + (time.monotonic() - began)
    assert first.ask(FINE).error_code == 0


def test_a_request_that_drips_in_is_not_waited_for(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    broker = kohort_broker_factory(kohort_frame_timeout_ms=200)
    slow, idle = connect(broker), connect(broker)
    slow.sock.sendall(struct.pack(">i", 1000) + b"half")
    assert slow.hung_up()
    assert idle.ask(FINE).error_code == 0


class FakeSession:
    """The part of a session that the sweep uses."""

    def __init__(self) -> None:
        self.peer_host = "there"
        self.frame = 0
        self.frame_since = Instant(0)
        self.reading = True
        self.closed = False
        self.half = (0, 0)
        self.heard = self.in_hand = False
        self.quiet_since = Instant(0)

    def close(self) -> None:
        self.closed = True


class SweptWorld:
    """The sweep under a clock of its own, with a timeout of 4 s: it looks every second."""

    def __init__(self) -> None:
        self.chores: Chores = Deadlines()
        self.session = FakeSession()
        self.now = Instant(0)
        sweep = SlowFrameSweep(
            self.chores,
            Millis(4_000),
            lambda: [cast("Session", self.session)],
            lambda _: self.session.half,
        )
        sweep.start(self.now)

    def run(self, seconds: int) -> bool:
        for _ in range(seconds):
            self.now = after(self.now, Millis(1_000))
            self.look()
        return self.session.closed

    def look(self) -> None:
        while (chore := self.chores.pop_due(self.now)) is not None:
            chore(self.now)


@pytest.fixture
def swept() -> SweptWorld:
    return SweptWorld()


def test_a_half_request_is_closed_when_its_time_is_over(swept: SweptWorld) -> None:
    swept.session.half = (1, 10)
    assert not swept.run(5)
    assert swept.run(2)


def test_the_next_request_has_a_time_of_its_own(swept: SweptWorld) -> None:
    for number in range(1, 9):
        swept.session.half = (number, 10)
        assert not swept.run(4)


def test_each_byte_that_arrives_extends_the_time(swept: SweptWorld) -> None:
    swept.session.half = (1, 10 * 16 * 1024)
    assert not swept.run(14)
    assert swept.run(3)


def test_while_this_side_does_not_read_nobody_is_slow(swept: SweptWorld) -> None:
    swept.session.half = (1, 10)
    swept.session.reading = False
    assert not swept.run(60)
    swept.session.reading = True
    assert not swept.run(4)
    assert swept.run(3)


def test_a_broker_that_slept_starts_over(swept: SweptWorld) -> None:
    swept.session.half = (1, 10)
    swept.run(3)
    swept.now = after(swept.now, Millis(60_000))
    swept.look()
    assert not swept.session.closed
    assert swept.run(6)


def test_without_a_half_request_silence_is_fine(swept: SweptWorld) -> None:
    assert not swept.run(100)


def test_time_in_which_the_broker_slept_is_no_idle_time() -> None:
    chores: Chores = Deadlines()
    session = FakeSession()
    sweep = IdleSweep(chores, Millis(80_000), lambda: [cast("Session", session)])
    sweep.start(Instant(0))
    closed_at = []
    for second in [*range(1, 50), *range(1_000, 1_060)]:
        now = after(Instant(0), Millis(second * 1_000))
        while (chore := chores.pop_due(now)) is not None:
            chore(now)
        if session.closed:
            closed_at.append(second)
    # It was silent for about 50 s before the broker slept; 30 s are left, and one interval.
    assert closed_at
    assert 1_025 <= closed_at[0] <= 1_050


def test_300_clients_connect_while_the_broker_is_busy() -> None:
    """They wait in the backlog. If it were full, the system would try again after 1 s, then 3 s."""
    if int(Path("/proc/sys/net/core/somaxconn").read_text(encoding="ascii")) < 300:
        pytest.skip("this machine limits the backlog")
    busy, done = threading.Event(), threading.Event()

    def work() -> None:
        busy.set()
        done.wait(60)

    with EmbeddedBroker() as broker, contextlib.ExitStack() as stack:
        stack.callback(done.set)
        loop_of(broker)._loop.call_soon_threadsafe(work)
        assert busy.wait(30)
        waiting = selectors.DefaultSelector()
        stack.callback(waiting.close)
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        for _ in range(300):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex((host, int(port)))
            waiting.register(client, selectors.EVENT_WRITE)
        end = time.monotonic() + 30
        while waiting.get_map() and time.monotonic() < end:
            for key, _ in waiting.select(1):
                waiting.unregister(key.fileobj)
        assert not waiting.get_map()
        assert not done.is_set()
