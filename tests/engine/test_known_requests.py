"""Joins and syncs that differ in their values only are read the short way, as the long way."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.engine.coordinator_bench import Client
from tests.engine.test_coordinator_commits import Life
from tests.examples import examples

from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.known_requests import MAX_KNOWN_SIZE, JoinShape, join_shape, sync_shape
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, Token
from kohort.wire.codec import decode_request, encode_request
from kohort.wire.coordinator_events import EVENT_MAKERS, join_again, sync_again
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.k14_sync_group import SyncGroupRequest
from kohort.wire.server_connection import Received, ServerConnection

METADATA = (
    bytes(10),
    bytes(9) + b"\1",
    b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
    b"\0\0\0\0\0\7too few",
)
"""Two without topics, one with a topic, one that is damaged."""


def join_of(client: Client, member_id: str, number: int) -> bytes:
    request = client.join_request("g", member_id)
    request.protocols[0].metadata = METADATA[number % 4 if number > 7 else number % 3]
    if number == 5:
        more = JoinGroupRequestProtocol(name="more", metadata=b"\0\0\0\0\0\0")
        request.protocols.append(more)
    return client.frame("JoinGroup", request)


def sync_of(client: Client, member_id: str, generation: int) -> None:
    answer = next((a for a in reversed(client.answers) if hasattr(a, "leader")), None)
    leads = answer is not None and answer.leader == member_id
    plan = {m.member_id: b"p" + m.metadata for m in answer.members} if leads and answer else {}
    client.sync("g", generation, member_id, plan)


def generation_of(client: Client) -> int:
    told = [a.generation_id for a in client.answers if hasattr(a, "leader")]
    return max(told, default=0)


# -- bytes -----------------------------------------------------------------------------------------

ascii_text = st.text(st.characters(max_codepoint=127), min_size=1, max_size=12)
requests = st.one_of(
    st.builds(
        JoinGroupRequest,
        group_id=st.text(max_size=9),
        session_timeout_ms=st.integers(0, 2**31 - 1),
        member_id=ascii_text,
        protocol_type=st.text(max_size=9),
        protocols=st.lists(
            st.builds(
                JoinGroupRequestProtocol,
                name=st.text(max_size=9),
                metadata=st.binary(min_size=1, max_size=200),
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    st.builds(
        SyncGroupRequest,
        group_id=st.text(max_size=9),
        generation_id=st.integers(-(2**31), 2**31 - 1),
        member_id=ascii_text,
        protocol_name=st.one_of(st.none(), st.text(max_size=9)),
        assignments=st.just([]),
    ),
)


def event_of(frame: bytes) -> tuple[Any, Any]:
    """The header and the event that the long way reads from a frame."""
    header, request = decode_request(frame[4:])
    asked = Received(Token(2), header, request)
    client = ServerConnection(id=ConnectionId(1), host="/h")
    return header, EVENT_MAKERS[type(request)](asked, client, lambda _: True)


def shape_of(frame: bytes) -> Any:
    header, request = decode_request(frame[4:])
    make: Any = join_shape if type(request) is JoinGroupRequest else sync_shape
    return make(frame, header, request)


def read_by(shape: Any, values: tuple[Any, ...]) -> Any:
    if type(shape) is JoinShape:
        return join_again(shape.event, Token(2), "/h", values)
    return sync_again(shape.event, Token(2), values)


@examples(60)
@given(request=requests, version=st.integers(5, 9), data=st.data())
def test_every_changed_byte_is_noticed_or_read(
    request: Any, version: int, data: st.DataObject
) -> None:
    if type(request) is SyncGroupRequest:
        version -= 4
    frame = encode_request(request, version, 5, "c")
    shape = shape_of(frame)
    assert shape is not None
    other = bytearray(frame)
    at = data.draw(st.integers(4, len(frame) - 1))
    other[at] = data.draw(st.integers(0, 255))
    for read in (frame, bytes(other)):
        values = shape.values(memoryview(read))
        if values is not None:
            header, event = event_of(read)
            assert read_by(shape, values) == event
            assert (header.correlation_id, header.client_id) == (values[0], "c")
            assert header.api_version == version
        else:
            assert read != frame


def join_frame(**fields: Any) -> bytes:
    protocol = JoinGroupRequestProtocol(name="range", metadata=fields.pop("metadata", b"1"))
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 9,
        "member_id": "m",
        "protocol_type": "consumer",
        "protocols": [protocol],
    }
    return encode_request(JoinGroupRequest(**values | fields), 9, 1, "c")


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"member_id": "é"},
        {"group_instance_id": "i"},
        {"protocols": []},
        {"metadata": b""},
        {"metadata": bytes(MAX_KNOWN_SIZE)},
    ],
)
def test_joins_that_are_not_kept(fields: dict[str, Any]) -> None:
    assert shape_of(join_frame()) is not None
    assert shape_of(join_frame(**fields)) is None


def test_members_of_a_group_share_a_shape() -> None:
    shapes = {id(shape_of(join_frame(member_id=m, metadata=m.encode() * 9))) for m in "abc"}
    assert len(shapes) == 1


# -- which way is taken ----------------------------------------------------------------------------


def test_later_joins_and_syncs_are_not_read_in_full(read_in_full: list[str]) -> None:
    life = Life(CoordinatorEngine)
    leader, follower = life.client("c"), life.client("c")
    ids = [leader.enter("g"), follower.enter("g")]
    life.wait(1)
    for number in range(4):
        if number == 2:
            read_in_full.clear()
        for client, member_id in zip((leader, follower), ids, strict=True):
            client.push(join_of(client, member_id, number % 2))
        for client, member_id in zip((leader, follower), ids, strict=True):
            sync_of(client, member_id, generation_of(client))
        life.written()
        assert follower.answers[-1].error_code == ErrorCode.NONE
        assert follower.answers[-1].assignment == b"p" + METADATA[number % 2]
    assert read_in_full == ["SyncGroupRequest"] * 2, "those of the leader"
