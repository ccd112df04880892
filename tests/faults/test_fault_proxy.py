"""The fault proxy itself: the bytes that pass, the faults, and changes at run time."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from tests.broker.conftest import Connect

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ConfigError
from kohort.testing.fault_proxy import FaultProxy, Toxics
from kohort.testing.ports import free_ports
from kohort.wire.messages import (
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k60_describe_cluster,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest

SOON_S = 20.0
VERSIONS = k18_api_versions.ApiVersionsRequest()
BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Echo:
    """A server that sends back what comes, and tells how its connections ended."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.reads: list[int] = []
        self.endings: list[str] = []
        self.ended = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            ending = "end"
            try:
                while data := sock.recv(1 << 16):
                    self.reads.append(len(data))
                    sock.sendall(data)
            except ConnectionError:
                ending = "reset"
            self.endings.append(ending)
            self.ended.set()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listener.close()


@pytest.fixture
def proxy(echo: Echo, kohort_fault_proxy: Callable[..., FaultProxy]) -> FaultProxy:
    return kohort_fault_proxy(echo.address, frames=False)


@pytest.fixture
def before_broker(
    kohort_broker: EmbeddedBroker, kohort_fault_proxy: Callable[..., FaultProxy]
) -> FaultProxy:
    return kohort_fault_proxy(kohort_broker.bootstrap_servers)


def dial(proxy: FaultProxy) -> socket.socket:
    host, _, port = proxy.bootstrap_servers.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SOON_S)


def receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def broken(proxy: FaultProxy) -> bool:
    """Whether a new connection is reset; it may be before ``connect`` returns."""
    try:
        with dial(proxy) as sock:
            return sock.recv(1) == b"?"
    except ConnectionError:
        return True


def read_until_broken(sock: socket.socket) -> bytes:
    got = b""
    try:
        while more := sock.recv(100):
            got += more
    except ConnectionError:
        return got
    raise AssertionError(f"an orderly end after {got!r}")


def quiet(sock: socket.socket, seconds: float) -> bool:
    sock.settimeout(seconds)
    try:
        return sock.recv(1) == b"?"
    except TimeoutError:
        return True
    finally:
        sock.settimeout(SOON_S)


def test_bytes_pass_both_ways_and_the_end_of_a_stream_too(proxy: FaultProxy, echo: Echo) -> None:
    with dial(proxy) as sock:
        sock.sendall(b"x" * 300_000)
        assert receive(sock, 300_000) == b"x" * 300_000
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    assert echo.ended.wait(SOON_S)
    assert echo.endings == ["end"]


def test_latency_and_jitter_delay_and_keep_the_order(proxy: FaultProxy) -> None:
    proxy.up = Toxics(latency_ms=80, jitter_ms=40)
    proxy.down = Toxics(latency_ms=50)
    with dial(proxy) as sock:
        began = time.monotonic()
        for byte in range(20):
            sock.sendall(bytes([byte]))
        assert receive(sock, 20) == bytes(range(20))
        assert time.monotonic() - began >= 0.130
        proxy.heal()
        sock.sendall(b"quick")
        assert receive(sock, 5) == b"quick"


def test_slices_tear_and_merges_join(proxy: FaultProxy, echo: Echo) -> None:
    proxy.up = Toxics(slice_bytes=1, slice_pause_ms=1)
    with dial(proxy) as sock:
        sock.sendall(b"abcdefgh")
        assert receive(sock, 8) == b"abcdefgh"
        assert len(echo.reads) > 1
        echo.reads.clear()
        proxy.up = Toxics(merge_ms=200)
        for byte in b"12345":
            sock.sendall(bytes([byte]))
        assert receive(sock, 5) == b"12345"
        assert len(echo.reads) == 1


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_blackhole_holds_back_what_arrives_when_it_is_over(
    proxy: FaultProxy, echo: Echo, way: str
) -> None:
    with dial(proxy) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"a"
        setattr(proxy, way, Toxics(blackhole=True))
        sock.sendall(b"b")
        assert quiet(sock, 0.2)
        assert len(echo.reads) == (1 if way == "up" else 2)
        setattr(proxy, way, Toxics())
        assert receive(sock, 1) == b"b"


def test_a_reset_is_heard_at_both_ends(proxy: FaultProxy, echo: Echo) -> None:
    with dial(proxy) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"a"
        assert proxy.reset() == 1
        with pytest.raises(ConnectionError):
            sock.recv(1)
    assert echo.ended.wait(SOON_S)
    assert echo.endings == ["reset"]


def test_half_open_connections_carry_nothing_and_new_ones_do(proxy: FaultProxy, echo: Echo) -> None:
    with dial(proxy) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"a"
        assert proxy.half_open() == 1
        sock.sendall(b"b")
        assert quiet(sock, 0.2)
        with dial(proxy) as other:
            other.sendall(b"c")
            assert receive(other, 1) == b"c"
    assert not echo.endings or echo.endings == ["end"], "only the other one's end was told"
    assert proxy.open_connections >= 1


def test_new_connections_can_be_refused(proxy: FaultProxy) -> None:
    proxy.refuse()
    assert broken(proxy)
    proxy.refuse(False)
    with dial(proxy) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"a"


def test_nobody_upstream_is_a_broken_connection(
    kohort_fault_proxy: Callable[..., FaultProxy],
) -> None:
    (port,) = free_ports(1)
    assert broken(kohort_fault_proxy(f"127.0.0.1:{port}"))


def test_garbage_passes_a_proxy_that_looks_at_frames(
    echo: Echo, kohort_fault_proxy: Callable[..., FaultProxy]
) -> None:
    with dial(kohort_fault_proxy(echo.address)) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert receive(sock, 18) == b"GET / HTTP/1.1\r\n\r\n"


def test_clients_are_told_to_stay_behind_the_proxy(
    before_broker: FaultProxy, connect: Connect
) -> None:
    client = connect(before_broker)
    here = before_broker.bootstrap_servers
    for version in (1, 9, 12):
        (row,) = client.ask(k03_metadata.MetadataRequest(topics=[]), version).brokers
        assert f"{row.host}:{row.port}" == here
    asked = k10_find_coordinator.FindCoordinatorRequest
    old = client.ask(asked(key="g"), 2)
    assert f"{old.host}:{old.port}" == here
    (row,) = client.ask(asked(coordinator_keys=["g"]), 4).coordinators
    assert f"{row.host}:{row.port}" == here
    (row,) = client.ask(k60_describe_cluster.DescribeClusterRequest()).brokers
    assert f"{row.host}:{row.port}" == here


def test_the_nth_answer_is_dropped_and_no_other(
    before_broker: FaultProxy, connect: Connect
) -> None:
    client = connect(before_broker)
    dropped = before_broker.drop_answer("Heartbeat", nth=2)
    assert client.ask(BEAT).error_code
    client.send(BEAT)
    assert dropped.wait(SOON_S)
    assert client.silent(0.1)
    client._asked.clear()
    assert client.ask(BEAT).error_code
    assert (before_broker.requests("Heartbeat"), before_broker.answers(12)) == (3, 3)


def test_a_dropped_request_never_arrives(before_broker: FaultProxy, connect: Connect) -> None:
    client = connect(before_broker)
    dropped = before_broker.drop_request("Heartbeat")
    client.send(BEAT)
    assert dropped.wait(SOON_S)
    client._asked.clear()
    assert client.ask(VERSIONS).error_code == 0
    assert before_broker.answers("Heartbeat") == 0


def test_requests_and_answers_are_delayed(before_broker: FaultProxy, connect: Connect) -> None:
    client = connect(before_broker)
    late = (
        before_broker.delay_request("Heartbeat", 120),
        before_broker.delay_answer("Heartbeat", 80),
    )
    began = time.monotonic()
    client.ask(BEAT)
    assert time.monotonic() - began >= 0.2
    assert all(late)


@pytest.mark.parametrize("what", ["cut_request", "cut_answer"])
def test_a_frame_is_cut_and_the_connection_broken(
    before_broker: FaultProxy, connect: Connect, what: str
) -> None:
    client = connect(before_broker)
    cut = getattr(before_broker, what)("Heartbeat", 5)
    client.send(BEAT)
    assert cut.wait(SOON_S)
    got = read_until_broken(client.sock)
    assert len(got) == (5 if what == "cut_answer" else 0)
    assert connect(before_broker).ask(VERSIONS).error_code == 0


def test_an_answer_is_changed(before_broker: FaultProxy, connect: Connect) -> None:
    client = connect(before_broker)
    before_broker.change_answer("Heartbeat", lambda frame: struct.pack(">i", 2**31 - 1) + frame[4:])
    client.send(BEAT)
    assert struct.unpack(">i", client._exactly(4)) == (2**31 - 1,)


def test_rules_are_gone_after_healing(before_broker: FaultProxy, connect: Connect) -> None:
    dropped = before_broker.drop_answer("Heartbeat")
    before_broker.heal()
    assert connect(before_broker).ask(BEAT).error_code
    assert not dropped


def test_two_proxies_of_one_cluster_name_each_other(
    echo: Echo, kohort_broker: EmbeddedBroker, kohort_fault_proxy: Callable[..., FaultProxy]
) -> None:
    routes: dict[str, str] = {}
    one = kohort_fault_proxy(kohort_broker.bootstrap_servers, routes=routes)
    kohort_fault_proxy(echo.address, routes=routes)
    assert routes.keys() == {kohort_broker.bootstrap_servers, echo.address}
    assert routes[kohort_broker.bootstrap_servers] == one.bootstrap_servers


def test_misuse_is_told(echo: Echo) -> None:
    with pytest.raises(ConfigError, match="expected host:port"):
        FaultProxy("nowhere")
    proxy = FaultProxy(echo.address, frames=False)
    with pytest.raises(ConfigError, match="is not running"):
        _ = proxy.bootstrap_servers
    with proxy:
        with pytest.raises(ConfigError, match="frames=True"):
            proxy.drop_answer("Heartbeat")
        with pytest.raises(ConfigError, match="make a new FaultProxy"):
            proxy.start()
    proxy.close()
    with FaultProxy(echo.address) as proxy:
        with pytest.raises(ConfigError, match="no API is called 'Hearbeat'"):
            proxy.drop_answer("Hearbeat")
        with pytest.raises(ConfigError, match="nth is 0"):
            proxy.drop_answer("Heartbeat", nth=0)


def test_closing_breaks_what_is_open(echo: Echo) -> None:
    proxy = FaultProxy(echo.address, frames=False).start()
    with dial(proxy) as sock:
        sock.sendall(b"a")
        assert receive(sock, 1) == b"a"
        proxy.close()
        with pytest.raises(ConnectionError):
            sock.recv(1)
