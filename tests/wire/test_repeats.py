from __future__ import annotations

import pytest

from kohort.model.errors import ProtocolError
from kohort.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    request_route,
)
from kohort.wire.headers import RequestHeader
from kohort.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k11_join_group import JoinGroupRequest
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.repeats import MAX_REMEMBERED_SIZE, RequestDecoder, recalling, remembering


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


def test_a_response_with_the_same_bytes_as_the_last_is_read_once() -> None:
    reads: list[int] = []

    def count(data: bytes, max_elements: int) -> object:
        reads.append(max_elements)
        return object()

    recall = recalling(count)
    first = recall(b"\0\0\0\1same", 10)
    assert recall(b"\0\0\0\2same", 10) is first
    assert recall(b"\0\0\0\3other", 10) is not first
    assert len(reads) == 2
    recall(b"\0\0\0\4other", 9)
    assert reads == [10, 10, 9], "a lower bound must be looked at again"


def test_metadata_is_read_anew_when_it_changes() -> None:
    def told(leader: int) -> MetadataResponse:
        row = MetadataResponsePartition(partition_index=0, leader_id=leader)
        topic = MetadataResponseTopic(name="t", partitions=[row])
        return MetadataResponse(brokers=[], topics=[topic])

    for correlation_id, leader in enumerate([1, 1, 2, 1]):
        frame = encode_response(told(leader), 12, correlation_id)[4:]
        found_id, found = decode_response(MetadataResponse, 12, frame)
        assert (found_id, found.topics[0].partitions[0].leader_id) == (correlation_id, leader)
