"""The broker's side of a connection: order of answers, limits, errors."""

from __future__ import annotations

import struct
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import InvariantViolation, ProtocolError
from kohort.model.ids import Token
from kohort.wire.apis import API_VERSIONS, APIS, BY_NAME
from kohort.wire.codec import RequestHeader, decode_response, encode_request, encode_response
from kohort.wire.messages.k00_produce import ProduceRequest
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kohort.wire.server_connection import Received, ServerConnection, ServerLimits


def heartbeat(correlation_id: int, group: str = "g", version: int = 4) -> bytes:
    return encode_request(HeartbeatRequest(group_id=group), version, correlation_id, "me")


def beaten(correlation_id: int, code: int = 0, version: int = 4) -> bytes:
    return encode_response(HeartbeatResponse(error_code=code), version, correlation_id)


def test_a_request_comes_out_with_its_header_and_is_answered_in_its_version() -> None:
    connection = ServerConnection()
    (received,) = connection.receive(heartbeat(7, version=2))
    assert received == Received(
        Token(1), RequestHeader(12, 2, 7, "me"), HeartbeatRequest(group_id="g")
    )
    assert len(connection._pending) == 1
    assert connection.answer(received.token, HeartbeatResponse(error_code=27)) == beaten(7, 27, 2)
    assert len(connection._pending) == 0


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_answers_leave_in_the_order_of_requests(order: list[int], skipped: set[int]) -> None:
    connection = ServerConnection()
    tokens = [r.token for r in connection.receive(b"".join(heartbeat(n) for n in range(6)))]
    sent = b""
    for done, n in enumerate(order, start=1):
        if n in skipped:
            sent += connection.skip(tokens[n])
        else:
            sent += connection.answer(tokens[n], HeartbeatResponse(error_code=n))
        first_open = next((k for k in range(6) if k not in order[:done]), 6)
        assert len(connection._pending) == 6 - first_open
        assert sent == b"".join(beaten(k, k) for k in range(first_open) if k not in skipped)


def test_a_parked_request_holds_up_its_own_connection_only() -> None:
    tokens = count(100).__next__
    first, second = ServerConnection(next_token=tokens), ServerConnection(next_token=tokens)
    join = encode_request(JoinGroupRequest(group_id="g"), 9, 1, None)
    parked, behind = first.receive(join + heartbeat(2))
    (other,) = second.receive(heartbeat(3))
    assert [parked.token, behind.token, other.token] == [100, 101, 102]
    assert first.answer(behind.token, HeartbeatResponse()) == b""
    assert second.answer(other.token, HeartbeatResponse()) == beaten(3)
    joined = encode_response(JoinGroupResponse(generation_id=1), 9, 1)
    assert first.answer(parked.token, JoinGroupResponse(generation_id=1)) == joined + beaten(2)


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_an_api_versions_request_of_another_version_is_told_the_range_in_version_0(
    version: int,
) -> None:
    connection = ServerConnection()
    frame = struct.pack(">hhi", 18, version, 41) + b"whatever a later version says"
    (received,) = connection.receive(struct.pack(">i", len(frame)) + frame)
    assert received.header == RequestHeader(18, version, 41, None)
    assert received.request == ApiVersionsRequest()
    everything = ApiVersionsResponse(api_keys=[ApiVersion(api_key=1, max_version=9)])
    data = connection.answer(received.token, everything)
    # size, correlation id, error code 35, one entry: key 18, versions 0 to 4
    assert data.hex() == "00000010" + "00000029" + "0023" + "00000001" + "0012" + "0000" + "0004"
    assert decode_response(ApiVersionsResponse, 0, data[4:])[1].error_code == 35


@pytest.mark.parametrize(
    ("key", "version"),
    [(12, 5), (12, -1), (0, 2), (0, 10), (1, 3), (1, 19), (10, 5), (36, 0), (68, 0), (-1, 0)],
)
def test_a_request_for_an_unserved_api_ends_the_connection(key: int, version: int) -> None:
    frame = struct.pack(">hhih", key, version, 1, -1) + bytes(40)
    with pytest.raises(ProtocolError, match=f"API key {key} version {version} is not served"):
        ServerConnection().receive(struct.pack(">i", len(frame)) + frame)


def test_only_the_given_apis_are_served() -> None:
    connection = ServerConnection(apis=[BY_NAME["Metadata"], API_VERSIONS])
    with pytest.raises(ProtocolError, match="key 12"):
        connection.receive(heartbeat(1))
    mute = ServerConnection(apis=[BY_NAME["Heartbeat"]])
    versions = encode_request(ApiVersionsRequest(), 3, 1, None)
    with pytest.raises(ProtocolError, match="key 18"):
        mute.receive(versions)


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x00", b"\x00\x00\x00\x05\x00\x0c\x00\x04\x00"])
def test_a_frame_without_room_for_a_header_ends_the_connection(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="no room for a header"):
        ServerConnection().receive(data)


def test_a_malformed_body_is_named() -> None:
    cut = heartbeat(1)[:-4]
    with pytest.raises(ProtocolError, match=r"HeartbeatRequest version 4.*the data ends"):
        ServerConnection().receive(struct.pack(">i", len(cut) - 4) + cut[4:])


def test_produce_without_acks_is_settled_without_bytes() -> None:
    connection = ServerConnection()
    produce = encode_request(ProduceRequest(acks=0), 9, 1, None)
    silent, beat = connection.receive(produce + heartbeat(2))
    assert connection.answer(beat.token, HeartbeatResponse()) == b""
    assert connection.skip(silent.token) == beaten(2)


def test_a_second_answer_is_an_invariant_violation() -> None:
    connection = ServerConnection()
    first, second = connection.receive(heartbeat(1) + heartbeat(2))
    connection.answer(second.token, HeartbeatResponse())
    for again in (second.token, Token(77)):
        with pytest.raises(InvariantViolation, match="waits for no answer"):
            connection.answer(again, HeartbeatResponse())
        with pytest.raises(InvariantViolation, match="waits for no answer"):
            connection.skip(again)
    with pytest.raises(InvariantViolation, match="answered with JoinGroupResponse"):
        connection.answer(first.token, JoinGroupResponse())


def test_a_value_that_does_not_fit_leaves_the_request_unanswered() -> None:
    connection = ServerConnection()
    (received,) = connection.receive(heartbeat(1))
    with pytest.raises(ProtocolError, match="error_code"):
        connection.answer(received.token, HeartbeatResponse(error_code=1 << 20))
    assert connection.answer(received.token, HeartbeatResponse(error_code=-1)) == beaten(1, -1)


def test_answers_after_close_are_dropped() -> None:
    connection = ServerConnection()
    tokens = [r.token for r in connection.receive(heartbeat(1) + heartbeat(2) + heartbeat(3))]
    connection.answer(tokens[1], HeartbeatResponse())
    assert connection.close() == [tokens[0], tokens[2]]
    assert connection.answer(tokens[0], HeartbeatResponse()) == b""
    assert connection.skip(tokens[2]) == b""
    assert not connection.wants_data
    with pytest.raises(ProtocolError, match="closed"):
        connection.receive(heartbeat(4))


def test_unanswered_requests_first_pause_reading_then_end_the_connection() -> None:
    connection = ServerConnection(limits=ServerLimits(pause_at=2, max_unanswered=4))

    def reading() -> bool:
        return connection.wants_data

    (first,) = connection.receive(heartbeat(1))
    assert reading()
    connection.receive(heartbeat(2))
    assert not reading()
    connection.answer(first.token, HeartbeatResponse())
    assert reading()
    connection.receive(heartbeat(3) * 3)
    with pytest.raises(ProtocolError, match="at most 4"):
        connection.receive(heartbeat(9))


def test_waiting_answers_have_a_limit() -> None:
    size = len(beaten(1))
    connection = ServerConnection(limits=ServerLimits(max_held=2 * size))
    tokens = [r.token for r in connection.receive(heartbeat(1) * 4)]
    for token in tokens[1:]:
        assert connection.answer(token, HeartbeatResponse()) == b""
    assert connection.answer(tokens[0], HeartbeatResponse()) == b""
    with pytest.raises(ProtocolError, match="bytes of answers wait"):
        connection.receive(b"")


def test_every_announced_version_is_handled_except_old_produce_versions() -> None:
    for api in APIS:
        differs = api.handled != api.broker
        assert differs == (api.name == "Produce"), api
