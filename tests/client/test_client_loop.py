"""The client's sockets: slow DNS, hosts with several addresses, addresses without an answer."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.client.stage import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import BrokerUnreachable
from kohort.client.membership import GroupMembership

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
        assert 0.25 <= time.monotonic() - started < 5, "the connection timeout is 10 s"


def test_a_name_that_is_not_known_is_named_in_the_error(
    dns: dict[str, Callable[[], list[Row]]],
) -> None:
    def unknown() -> list[Row]:
        raise socket.gaierror(socket.EAI_NONAME, "name not known")

    dns["nowhere.test"] = unknown
    admin = Admin(bootstrap_servers="nowhere.test:1", socket_connection_setup_timeout_ms=300)
    with pytest.raises(BrokerUnreachable, match=r"cannot resolve nowhere\.test: name not known"):
        admin.topics()
    admin.close()
