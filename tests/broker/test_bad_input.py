"""Damaged requests: their connection is closed, other connections notice nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from tests.broker.conftest import Connect, RawClient

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.wire.codec import encode_request
from kohort.wire.messages import k03_metadata, k12_heartbeat, k18_api_versions

FINE = k18_api_versions.ApiVersionsRequest()


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def head(key: int, version: int) -> bytes:
    return struct.pack(">hhih", key, version, 1, -1)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 100 * 1024 * 1024 + 1),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        frame(b""),
        frame(b"\x00\x12"),
        frame(head(999, 0)),
        frame(head(3, 99)),
        frame(head(0, 2) + b"\x00" * 20),
        frame(head(12, 0)),
        frame(head(12, 0) + b"\x00\x01\xff"),
        frame(head(12, 0) + struct.pack(">h", 2) + b"\xff\xfe" + bytes(8)),
        frame(head(3, 1) + struct.pack(">i", 2**31 - 1)),
        frame(head(3, 1) + struct.pack(">i", -2)),
    ],
    ids=lambda data: data[:12].hex(),
)
def test_nonsense_costs_its_own_connection_only(
    kohort_broker: EmbeddedBroker, connect: Connect, data: bytes
) -> None:
    bad, good = connect(kohort_broker), connect(kohort_broker)
    assert good.ask(FINE).error_code == 0
    bad.sock.sendall(data)
    assert bad.hung_up()
    assert good.ask(FINE).error_code == 0


def test_a_frame_larger_than_the_setting_is_refused(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    broker = kohort_broker_factory(socket_request_max_bytes=1000)
    client = connect(broker)
    assert client.ask(FINE).error_code == 0
    client.sock.sendall(struct.pack(">i", 1001))
    assert client.hung_up()


def test_torn_frames_are_put_together(raw: RawClient) -> None:
    request = encode_request(k03_metadata.MetadataRequest(topics=[]), 9, 1, "torn")
    raw.send(k03_metadata.MetadataRequest(topics=[]), 9, answered=True)
    assert len(raw.receive().brokers) == 1
    for byte in request:
        raw.sock.sendall(bytes([byte]))
    size = struct.unpack(">i", raw._exactly(4))[0]
    assert struct.unpack_from(">i", raw._exactly(size))[0] == 1


def test_a_client_that_leaves_in_the_middle_of_a_frame(
    kohort_broker: EmbeddedBroker, connect: Connect
) -> None:
    connect(kohort_broker).sock.sendall(struct.pack(">i", 50_000) + b"half")
    gone = connect(kohort_broker)
    gone.sock.sendall(struct.pack(">i", 50_000) + b"half")
    gone.close()
    assert connect(kohort_broker).ask(FINE).error_code == 0


def test_an_unknown_version_of_api_versions_tells_the_range(raw: RawClient) -> None:
    raw.sock.sendall(frame(head(18, 77)))
    size = struct.unpack(">i", raw._exactly(4))[0]
    body = raw._exactly(size)
    correlation, error, count = struct.unpack_from(">ihi", body)
    assert (correlation, error, count) == (1, ErrorCode.UNSUPPORTED_VERSION, 1)
    assert struct.unpack_from(">hhh", body, 10) == (18, 0, 4)
    assert raw.ask(FINE).error_code == 0


def test_a_heartbeat_of_nobody(raw: RawClient) -> None:
    request = k12_heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
    assert raw.ask(request).error_code == ErrorCode.UNKNOWN_MEMBER_ID
