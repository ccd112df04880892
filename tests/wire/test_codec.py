"""Requests and responses with their headers, byte by byte."""

from __future__ import annotations

import struct

import pytest

from kohort.model.errors import ProtocolError
from kohort.wire.codec import (
    RequestHeader,
    correlation_id_of,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    peek,
)
from kohort.wire.messages.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

# Heartbeat v4, correlation id 9, client "c", header with one unknown tagged field (tag 5, 2
# bytes), group "g", generation 3, member "m", no instance id, two unknown tagged fields.
FLEXIBLE_HEARTBEAT = bytes.fromhex(
    "000c 0004 00000009 0001 63"
    "01 05 02 aabb"
    "02 67 00000003 02 6d 00"
    "02 00 01 ff 8101 03 010203".replace(" ", "")
)


def test_a_flexible_request_with_unknown_tagged_fields_is_read() -> None:
    header, request = decode_request(FLEXIBLE_HEARTBEAT)
    assert header == RequestHeader(12, 4, 9, "c")
    assert request == HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def test_unknown_tagged_fields_beside_known_ones_are_skipped() -> None:
    body = encode_response(ApiVersionsResponse(finalized_features_epoch=7), 3, 1)[8:]
    assert body.endswith(bytes.fromhex("01 01 08 0000000000000007".replace(" ", "")))
    tagged = body[:-11] + bytes.fromhex("03 01 08 0000000000000007 09 01 ff 2a 00".replace(" ", ""))
    _, response = decode_response(ApiVersionsResponse, 3, struct.pack(">i", 1) + tagged)
    assert response == ApiVersionsResponse(finalized_features_epoch=7)


def test_a_tagged_field_of_another_size_is_refused() -> None:
    body = bytes.fromhex("0000 01 00000000 01 01 07 00000000000007".replace(" ", ""))
    with pytest.raises(ProtocolError, match="finalized_features_epoch"):
        decode_response(ApiVersionsResponse, 3, struct.pack(">i", 1) + body)


@pytest.mark.parametrize("version", range(5))
def test_the_header_of_an_api_versions_response_never_has_tags(version: int) -> None:
    response = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, max_version=4)])
    frame = encode_response(response, version, 77)[4:]
    # The error code follows the correlation id, then the array.
    assert frame[:6] == struct.pack(">ih", 77, 0)
    assert frame[6:7] == (b"\x02" if version >= 3 else b"\x00")
    assert decode_response(ApiVersionsResponse, version, frame) == (77, response)


def test_flexible_responses_of_other_apis_have_a_tagged_header() -> None:
    assert encode_response(HeartbeatResponse(error_code=27), 4, 1) == bytes.fromhex(
        "0000000c 00000001 00 00000000 001b 00".replace(" ", "")
    )
    assert encode_response(HeartbeatResponse(error_code=27), 3, 1) == bytes.fromhex(
        "0000000a 00000001 00000000 001b".replace(" ", "")
    )


def test_the_client_id_keeps_its_old_form_in_flexible_headers() -> None:
    frame = encode_request(ApiVersionsRequest(client_software_name="k"), 3, 5, "me")
    assert frame[4:] == bytes.fromhex(
        "0012 0003 00000005 0002 6d65 00 02 6b 01 00".replace(" ", "")
    )


@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 100])
def test_client_ids_are_read_back(client_id: str | None) -> None:
    for version in (0, 4):
        frame = encode_request(HeartbeatRequest(group_id="g"), version, 3, client_id)[4:]
        assert decode_request(frame)[0] == RequestHeader(12, version, 3, client_id)


def test_a_client_id_beyond_its_length_field_is_refused() -> None:
    with pytest.raises(ProtocolError, match="at most 32767"):
        encode_request(HeartbeatRequest(), 0, 3, "x" * 32_768)


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (b"", "no room for a header"),
        (b"\x00\x0c\x00\x04", "no room for a header"),
        (struct.pack(">hhih", 12, 5, 1, -1), "versions 0-4, not 5"),
        (struct.pack(">hhih", 12, -1, 1, -1), "versions 0-4, not -1"),
        (struct.pack(">hhih", 999, 0, 1, -1), "unknown API key 999"),
        (struct.pack(">hhih", -3, 0, 1, -1), "unknown API key -3"),
        (struct.pack(">hhih", 12, 0, 1, 500) + b"abc", "the data ends"),
        (struct.pack(">hhih", 12, 0, 1, 2) + b"\xff\xfe", "client_id.*not UTF-8"),
        (struct.pack(">hhihh", 12, 0, 1, -1, -1), "group_id.*length -1"),
        (struct.pack(">hhihh", 12, 0, 1, -1, 1) + b"\xff" + b"\x00" * 6, "group_id.*not UTF-8"),
        (struct.pack(">hhih", 12, 4, 1, -1) + b"\x00\x00", "group_id.*null"),
        (struct.pack(">hhih", 12, 4, 1, -1) + b"\x00" + b"\xff" * 9, "group_id.*varint"),
    ],
)
def test_the_error_of_a_bad_request_names_field_and_position(frame: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        decode_request(frame)


def test_the_error_of_a_response_names_the_value_that_does_not_fit() -> None:
    with pytest.raises(ProtocolError, match="version 4: error_code: 70000 does not fit int16"):
        encode_response(HeartbeatResponse(error_code=70_000), 4, 1)
    with pytest.raises(ProtocolError, match="versions 0-4, not 9"):
        encode_response(HeartbeatResponse(), 9, 1)
    with pytest.raises(ProtocolError, match=r"group_instance_id: version 2 has no such field"):
        encode_request(HeartbeatRequest(group_instance_id="i"), 2, 1, None)


def test_records_are_unchanged_from_any_buffer() -> None:
    batch = bytes(range(256)) * 4
    for records in (batch, memoryview(batch), bytearray(batch)):
        message = ProduceRequest(
            acks=-1,
            topic_data=[
                TopicProduceData(
                    name="t",
                    # A bytearray is not promised, but works.
                    partition_data=[PartitionProduceData(index=1, records=records)],  # type: ignore[arg-type]
                )
            ],
        )
        for version in (3, 9):
            _, again = decode_request(encode_request(message, version, 1, None)[4:])
            got = again.topic_data[0].partition_data[0].records
            assert type(got) is bytes
            assert got == batch


def test_peek_and_correlation_id_need_only_their_bytes() -> None:
    assert peek(struct.pack(">hhi", 18, 99, 5)) == (18, 99, 5)
    assert correlation_id_of(struct.pack(">i", -2)) == -2
    with pytest.raises(ProtocolError):
        peek(b"\x00" * 7)
    with pytest.raises(ProtocolError):
        correlation_id_of(b"\x00" * 3)
