"""Joins and syncs that differ in their values only are read the short way, as the long way."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.engine.coordinator_bench import Client
from tests.engine.test_coordinator_commits import (
    Life,
    LongWayEngine,
    LongWayRecordingEngine,
    write_together,
)
from tests.examples import examples

from kohort.engine.coordinator_engine import CoordinatorEngine
from kohort.engine.coordinator_recording import RecordingCoordinatorEngine
from kohort.engine.known_requests import MAX_KNOWN_SIZE, JoinShape, join_shape, sync_shape
from kohort.model.errors import ErrorCode
from kohort.model.ids import ConnectionId, Token
from kohort.wire.codec import decode_request, encode_request
from kohort.wire.coordinator_events import EVENT_MAKERS, join_again, sync_again
from kohort.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k14_sync_group import SyncGroupRequest
from kohort.wire.server_connection import Received, ServerConnection

METADATA = (
    bytes(10),
    bytes(9) + b"\1",
    b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
    b"\0\0\0\0\0\7too few",
)
"""Two without topics, one with a topic, one that is damaged."""

WHO, ANY = st.integers(0, 2), st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("round"), WHO, ANY),
        st.tuples(st.just("round"), WHO, ANY),
        st.tuples(st.sampled_from(["join", "sync", "join all", "write all"]), WHO, ANY),
        st.tuples(
            st.sampled_from(["torn join", "late sync", "beat", "lose", "stranger"]), WHO, ANY
        ),
        st.tuples(st.just("wait"), WHO, st.integers(0, 70_000)),
    ),
    max_size=12,
)
"""In a round all members join and sync, and the writes are durable."""


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


def play(life: Life, steps: list[tuple[str, int, int]], join: int, sync: int) -> list[str]:
    """Three members of one group; returns all visible results."""
    versions = {"JoinGroup": join, "SyncGroup": sync}
    clients = [life.client("c", **versions) for _ in range(3)]
    seats = [(client, client.enter("g")) for client in clients]
    life.wait(1)
    for what, who, number in [("round", 0, 0), ("round", 0, 1), *steps]:
        match what:
            case "wait":
                life.wait(number)
            case "write all":
                write_together(life)
            case "lose":
                life.carry_out(life.engine.lost(seats[who][0].conn, life.now))
                seats[who] = life.client("c", **versions), seats[who][1]
            case "round":
                say_all(seats, ("join", number))
                say_all(seats, ("sync", number))
                write_together(life)
            case "join all":
                say_all(seats, ("join", number))
            case _:
                say_all(seats[who : who + 1], (what, number))
        life.journal.append(f"due {life.engine.next_deadline()}")
    write_together(life)
    life.journal.append(f"log {life.stored}")
    return life.journal


def say_all(seats: list[tuple[Client, str]], words: tuple[str, int]) -> None:
    for client, member_id in seats:
        if not client.closed:
            say(client, member_id, words)


def say(client: Client, member_id: str, words: tuple[str, int]) -> None:
    what, number = words
    match what:
        case "join":
            client.push(join_of(client, member_id, number))
        case "torn join":
            frame = join_of(client, member_id, number)
            client.push(frame[: 9 * number])
            client.push(frame[9 * number :])
        case "stranger":
            client.push(join_of(client, "c-9", number))
        case "sync":
            sync_of(client, member_id, generation_of(client))
        case "late sync":
            sync_of(client, member_id, generation_of(client) - 1)
        case "beat":
            heartbeat = HeartbeatRequest(
                group_id="g", generation_id=generation_of(client), member_id=member_id
            )
            client.send("Heartbeat", heartbeat)
        case _:
            raise AssertionError(what)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (CoordinatorEngine, LongWayEngine),
        (RecordingCoordinatorEngine, LongWayRecordingEngine),
    ],
)
@examples(40)
@given(steps=STEPS, join=st.integers(4, 9), sync=st.integers(0, 5))
def test_the_short_way_and_the_long_way_give_the_same_results(
    short: type[CoordinatorEngine],
    long: type[CoordinatorEngine],
    steps: list[tuple[str, int, int]],
    join: int,
    sync: int,
) -> None:
    lives = Life(short), Life(long)
    assert play(lives[0], steps, join, sync) == play(lives[1], steps, join, sync)
    assert lives[0].told == lives[1].told


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
