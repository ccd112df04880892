"""The client's side of a connection: versions, order of responses, errors."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kohort.model.errors import InvariantViolation, ProtocolError
from kohort.wire.apis import announced
from kohort.wire.client_connection import ClientConnection
from kohort.wire.codec import decode_request, encode_response
from kohort.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from kohort.wire.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kohort.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k13_leave_group import LeaveGroupRequest, MemberIdentity
from kohort.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kohort.wire.server_connection import ServerConnection


def unanswered(connection: ClientConnection) -> int:
    """The number of expected responses, with those of requests that wait for the versions."""
    return len(connection._expected) + len(connection._waiting)


def told(*ranges: tuple[int, int, int], error_code: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[ApiVersion(api_key=k, min_version=a, max_version=b) for k, a, b in ranges],
    )


def opened(*ranges: tuple[int, int, int]) -> ClientConnection:
    connection = ClientConnection(client_id="me")
    connection.open()
    connection.receive(encode_response(told(*(ranges or announced())), 4, 1))
    assert connection.ready
    return connection


def read(data: bytes) -> tuple[int, int, Any]:
    header, request = decode_request(data[4:])
    assert header.client_id == "me"
    return header.correlation_id, header.api_version, request


def test_the_first_request_asks_for_versions_and_names_the_client() -> None:
    connection = ClientConnection(client_id="me", software_version="1.2")
    assert read(connection.open()) == (
        1,
        4,
        ApiVersionsRequest(client_software_name="kohort", client_software_version="1.2"),
    )
    assert not connection.ready


def test_requests_wait_for_the_versions_and_leave_in_the_best_common_one() -> None:
    connection = ClientConnection(client_id="me")
    connection.open()
    assert connection.send(HeartbeatRequest(group_id="g")) == b""
    assert connection.correlation_id == 2
    assert connection.take_output() == b""
    assert unanswered(connection) == 2
    assert connection.receive(encode_response(told((12, 1, 3), (18, 0, 9)), 4, 1)) == []
    assert read(connection.take_output()) == (2, 3, HeartbeatRequest(group_id="g"))
    assert connection.take_output() == b""
    answer = encode_response(HeartbeatResponse(error_code=27), 3, 2)
    assert connection.receive(answer) == [(2, HeartbeatResponse(error_code=27))]
    assert unanswered(connection) == 0


def test_a_refused_api_versions_request_is_repeated_in_a_known_version() -> None:
    connection = ClientConnection(client_id="me")
    connection.open()
    assert connection.receive(encode_response(told((18, 0, 2), error_code=35), 0, 1)) == []
    unsettled = not connection.ready
    assert unsettled
    assert read(connection.take_output())[:2] == (2, 2)
    connection.receive(encode_response(told((12, 0, 4), (18, 0, 2)), 2, 2))
    assert connection.ready
    assert connection.version_of(HeartbeatRequest) == 4


def test_a_refusal_without_a_range_leads_to_version_0() -> None:
    connection = ClientConnection(client_id="me")
    connection.open()
    connection.receive(encode_response(told(error_code=35), 0, 1))
    assert read(connection.take_output())[:2] == (2, 0)
    with pytest.raises(ProtocolError, match="UNSUPPORTED_VERSION"):
        connection.receive(encode_response(told(error_code=35), 0, 2))


@pytest.mark.parametrize(
    ("theirs", "expected"), [((12, 0, 9), 4), ((12, 2, 2), 2), ((12, 4, 4), 4)]
)
def test_the_highest_common_version_is_used(theirs: tuple[int, int, int], expected: int) -> None:
    assert read(opened(theirs).send(HeartbeatRequest()))[1] == expected


def test_a_request_without_a_common_version_is_refused() -> None:
    with pytest.raises(ProtocolError, match=r"speaks 7-9, this side 0-4"):
        opened((12, 7, 9)).send(HeartbeatRequest())
    with pytest.raises(ProtocolError, match="does not announce Metadata"):
        opened((12, 0, 4)).send(MetadataRequest())
    with pytest.raises(ProtocolError, match="members: version 2 has no such field"):
        opened((13, 0, 2)).send(LeaveGroupRequest(members=[MemberIdentity(member_id="m")]))
    with pytest.raises(ProtocolError, match="no request"):
        opened().send(HeartbeatResponse())


def test_versions_are_unknown_before_the_brokers_answer() -> None:
    with pytest.raises(InvariantViolation, match="Heartbeat"):
        ClientConnection(client_id=None).version_of(HeartbeatRequest)


def test_responses_must_answer_requests_in_order() -> None:
    connection = opened()
    connection.send(HeartbeatRequest())
    connection.send(HeartbeatRequest())
    with pytest.raises(ProtocolError, match="response 3 came where 2"):
        connection.receive(encode_response(HeartbeatResponse(), 4, 3))
    idle = opened()
    with pytest.raises(ProtocolError, match="without a request"):
        idle.receive(encode_response(HeartbeatResponse(), 4, 2))


def test_responses_arrive_torn_and_merged() -> None:
    connection = opened()
    for _ in range(3):
        connection.send(HeartbeatRequest())
    stream = b"".join(encode_response(HeartbeatResponse(error_code=n), 4, n) for n in (2, 3, 4))
    out = connection.receive(stream[:5]) + connection.receive(stream[5:30])
    out += connection.receive(stream[30:])
    assert out == [(n, HeartbeatResponse(error_code=n)) for n in (2, 3, 4)]


def test_batches_of_a_large_answer_are_views_and_other_large_answers_are_copied() -> None:
    connection = opened()
    batches, text = bytes(1 << 18), "t" * 30_000
    rows = [PartitionData(records=batches), PartitionData(records=b"")]
    fetched = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=rows)])
    known = MetadataResponse(topics=[MetadataResponseTopic(name=text)] * 10)
    connection.send(FetchRequest())
    connection.send(MetadataRequest())
    version = connection.version_of(FetchRequest)
    stream = encode_response(fetched, version, 2)
    stream += encode_response(known, connection.version_of(MetadataRequest), 3)
    found = []
    for at in range(0, len(stream), 1 << 16):
        found += connection.receive(stream[at : at + (1 << 16)])
    assert found == [(2, fetched), (3, known)]
    kinds = [type(row.records) for row in found[0][1].responses[0].partitions]
    assert kinds == [memoryview, memoryview]


def test_produce_without_acks_expects_nothing() -> None:
    connection = opened()
    connection.send(ProduceRequest(acks=0))
    assert unanswered(connection) == 0
    connection.send(ProduceRequest(acks=-1))
    assert unanswered(connection) == 1
    assert connection.receive(encode_response(ProduceResponse(), 9, 3)) == [(3, ProduceResponse())]


def test_close_returns_unanswered_requests() -> None:
    connection = ClientConnection(client_id=None)
    connection.open()
    connection.send(HeartbeatRequest())
    assert connection.close() == [2]
    later = opened()
    later.send(MetadataRequest())
    assert later.close() == [2]
    assert unanswered(later) == 0


def test_a_malformed_response_is_a_protocol_error() -> None:
    connection = opened()
    connection.send(MetadataRequest())
    with pytest.raises(ProtocolError, match="MetadataResponse version 13"):
        connection.receive(struct.pack(">iib", 6, 2, 0) + b"\x00")
    with pytest.raises(ProtocolError, match="no header"):
        opened().receive(b"\x00\x00\x00\x02\x00\x00")


def test_client_and_server_understand_each_other() -> None:
    client, server = ClientConnection(client_id="me"), ServerConnection()
    client.send(MetadataRequest(topics=None))
    (asked,) = server.receive(client.open())
    client.receive(server.answer(asked.token, told(*announced())))
    (metadata,) = server.receive(client.take_output())
    assert metadata.request == MetadataRequest(topics=None)
    answer = server.answer(metadata.token, MetadataResponse(cluster_id="k"))
    assert client.receive(answer) == [(1, MetadataResponse(cluster_id="k"))]
