"""Repeated bytes: heartbeats and unchanged responses."""

from __future__ import annotations

import pytest

from kohort.model.errors import ProtocolError
from kohort.wire.codec import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    recalling,
)
from kohort.wire.messages.k03_metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest


def frame(correlation_id: int, member: str = "m", client: str | None = "c") -> bytes:
    return encode_request(
        HeartbeatRequest(group_id="g", generation_id=5, member_id=member), 4, correlation_id, client
    )[4:]


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
