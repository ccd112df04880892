from __future__ import annotations

import pytest

from kohort.model.errors import ProtocolError
from kohort.wire.codec import decode_request, encode_request, request_route
from kohort.wire.headers import RequestHeader
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.repeats import MAX_REMEMBERED_SIZE, RequestDecoder, remembering


class Counting:
    """The real decoder of Heartbeat v4, with a count of how often it had to read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self, frame: bytes, correlation_id: int, length: int, budget: int) -> object:
        self.reads += 1
        return decode_request(frame[:8] + frame[8:])


def frame(correlation_id: int, member: str = "m", client: str | None = "c") -> bytes:
    return encode_request(
        HeartbeatRequest(group_id="g", generation_id=5, member_id=member), 4, correlation_id, client
    )[4:]


def read(decode: RequestDecoder, data: bytes) -> tuple[RequestHeader, HeartbeatRequest]:
    correlation_id = int.from_bytes(data[4:8], "big")
    length = int.from_bytes(data[8:10], "big", signed=True)
    return decode(data, correlation_id, length, 100)


def test_a_heartbeat_that_only_differs_in_its_correlation_id_is_read_once() -> None:
    counting = Counting()
    decode = remembering(counting)  # type: ignore[arg-type]
    for correlation_id in (1, 2, 3):
        header, request = read(decode, frame(correlation_id))
        assert header == RequestHeader(12, 4, correlation_id, "c")
        assert request == HeartbeatRequest(group_id="g", generation_id=5, member_id="m")
    assert counting.reads == 1


def test_anything_else_that_differs_is_read() -> None:
    counting = Counting()
    decode = remembering(counting)  # type: ignore[arg-type]
    for data in (frame(1), frame(1, member="n"), frame(1, client="d"), frame(1, client=None)):
        expected = decode_request(data)
        assert read(decode, data) == expected
        assert read(decode, data) == expected
    assert counting.reads == 4


def test_what_is_remembered_is_bounded_in_number_and_size() -> None:
    counting = Counting()
    decode = remembering(counting, limit=2)  # type: ignore[arg-type]
    for member in "abc":
        read(decode, frame(1, member=member))
    read(decode, frame(2, member="c"))
    assert counting.reads == 3
    read(decode, frame(2, member="a"))
    assert counting.reads == 4, "the third member made the first two forgotten"
    long = frame(1, member="x" * MAX_REMEMBERED_SIZE)
    read(decode, long)
    read(decode, long)
    assert counting.reads == 6


def test_heartbeats_share_a_message_and_other_requests_do_not() -> None:
    assert decode_request(frame(1))[1] is decode_request(frame(2))[1]
    join = encode_request(JoinGroupRequest(group_id="g"), 9, 1, None)[4:]
    assert decode_request(join)[1] is not decode_request(join)[1]
    assert request_route(12, 4) is request_route(12, 4)


def test_a_malformed_heartbeat_is_refused_every_time() -> None:
    for _ in range(3):
        with pytest.raises(ProtocolError, match="HeartbeatRequest version 4"):
            decode_request(frame(1)[:-3])
