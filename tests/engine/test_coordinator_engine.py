"""The coordinator in bytes and tickets: torn data, order of answers, dead connections."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.coordinator_bench import WALL, Bench, Client, commit_request, stable

from kohort.engine.coordinator_writes import Write
from kohort.model.errors import ErrorCode, InvariantViolation, ProtocolError
from kohort.model.ids import ConnectionId, Token
from kohort.model.instants import Instant
from kohort.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from kohort.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
)
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest
from kohort.wire.messages.k16_list_groups import ListGroupsRequest
from kohort.wire.server_connection import ServerLimits

# -- bytes -----------------------------------------------------------------------------------------


def conversation(client: Client, member_id: str) -> bytes:
    """Seven requests in one string of bytes."""
    frames = [
        client.frame(
            "Heartbeat",
            HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id),
        )
        for generation in range(5)
    ]
    frames.append(client.frame("OffsetCommit", commit_request()))
    frames.append(client.frame("ListGroups", ListGroupsRequest()))
    return b"".join(frames)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
def test_requests_may_arrive_in_pieces_or_together(size: int) -> None:
    bench = Bench()
    client, member_id = stable(bench)
    before = len(client.answers)
    data = conversation(client, member_id)
    for start in range(0, len(data), size):
        client.push(data[start : start + size])
    bench.written()
    codes = [getattr(answer, "error_code", None) for answer in client.answers[before:]]
    illegal = ErrorCode.ILLEGAL_GENERATION
    assert codes == [illegal, 0, illegal, illegal, illegal, None, 0]


def test_a_parked_join_holds_up_its_own_connection_and_no_other() -> None:
    bench = Bench(delay=3_000)
    first, second = bench.client("a"), bench.client("b")
    member_id = first.enter("g")
    first.send("ListGroups", ListGroupsRequest())
    assert len(first.answers) == 1, "the list waits behind the parked join"
    second.send("ListGroups", ListGroupsRequest())
    assert len(second.answers) == 1
    bench.wait(3_000)
    assert [type(a).__name__ for a in first.answers] == [
        "JoinGroupResponse",
        "JoinGroupResponse",
        "ListGroupsResponse",
    ]
    assert first.answers[1].member_id == member_id


def test_a_join_sent_twice_on_one_connection_is_answered_twice_and_in_order() -> None:
    bench = Bench(delay=3_000)
    client = bench.client("a")
    member_id = client.enter("g")
    client.join("g", member_id)
    assert client.answers[1].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    bench.wait(3_000)
    assert client.answers[2].generation_id == 1


def test_requests_for_the_shell_leave_the_engine_and_are_answered_in_order() -> None:
    bench = Bench()
    client = bench.client("c")
    client.send("Metadata", MetadataRequest(topics=None))
    client.send("ListGroups", ListGroupsRequest())
    assert client.answers == [], "the list waits for the metadata"
    (handle,) = bench.handled
    assert (handle.conn, handle.header.api_key) == (client.conn, 3)
    assert isinstance(handle.request, MetadataRequest)
    bench.carry_out(bench.engine.answer(handle.conn, handle.token, MetadataResponse()))
    assert [type(a).__name__ for a in client.answers] == ["MetadataResponse", "ListGroupsResponse"]


def test_a_request_that_wants_no_answer_lets_the_next_one_through() -> None:
    bench = Bench()
    client = bench.client("c")
    client.send("Metadata", MetadataRequest(topics=None))
    client._sent.clear()
    client._correlation = 0
    client.send("ListGroups", ListGroupsRequest())
    bench.carry_out(bench.engine.answer(client.conn, bench.handled[0].token, None))
    assert [type(a).__name__ for a in client.answers] == ["ListGroupsResponse"]


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x02ab",
        b"\x00\x00\x00\x0a\x00\x0b\x00\x63\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0c\x00\x0c\x00\x00\x00\x00\x00\x01\xff\xff\x00\x63",
    ],
)
def test_bad_bytes_close_their_own_connection_and_touch_nothing_else(data: bytes) -> None:
    bench = Bench()
    good, member_id = stable(bench)
    bad = bench.client("bad")
    bad.push(data)
    assert bad.closed
    assert not good.closed
    assert good.beat("g", 1, member_id) == 0
    bad.push(b"more")
    assert not bench.engine.wants_data(bad.conn)


def test_a_client_that_lets_answers_pile_up_behind_a_parked_join_is_closed() -> None:
    bench = Bench(delay=3_000, limits=ServerLimits(max_held=200))
    client = bench.client("c")
    client.enter("g")
    for _ in range(20):
        client.send("ListGroups", ListGroupsRequest())
    assert "bytes of answers wait" in client.closed
    bench.wait(3_000)
    assert bench.engine._owed == {}


# -- dead connections ------------------------------------------------------------------------------


def test_a_member_that_disconnects_while_parked_is_not_in_the_generation() -> None:
    bench = Bench(delay=3_000)
    dead, alive = bench.client("dead"), bench.client("alive")
    dead.enter("g")
    member_id = alive.enter("g")
    bench.carry_out(bench.engine.lost(dead.conn, bench.now))
    assert bench.facts[-1] == "ParkedJoinDropped"
    bench.wait(6_000)
    assert len(dead.answers) == 1
    assert [m.member_id for m in alive.answers[-1].members] == [member_id]
    assert bench.engine._owed == {}


def test_a_client_that_breaks_the_protocol_while_parked_is_dropped_too() -> None:
    bench = Bench(delay=3_000)
    bad = bench.client("bad")
    bad.enter("g")
    bench.carry_out(bench.engine.received(bad.conn, b"\xff\xff\xff\xff", bench.now))
    assert bad.closed
    assert bench.facts[-1] == "ParkedJoinDropped"


def test_a_parked_id_may_join_again_from_a_new_connection() -> None:
    bench = Bench(delay=3_000)
    first = bench.client("c")
    member_id = first.enter("g")
    bench.carry_out(bench.engine.lost(first.conn, bench.now))
    again = bench.client("c")
    again.join("g", member_id)
    bench.wait(3_000)
    assert (again.answers[0].error_code, again.answers[0].generation_id) == (0, 1)
    assert bench.engine._owed == {}


def test_a_durable_write_is_kept_although_its_client_disconnected() -> None:
    bench = Bench()
    client = bench.client("c")
    client.send("OffsetCommit", commit_request())
    bench.carry_out(bench.engine.lost(client.conn, bench.now))
    bench.written()
    other = bench.client("o", OffsetFetch=7)
    other.send("OffsetFetch", OffsetFetchRequest(group_id="g", topics=None))
    assert other.answers[0].topics[0].partitions[0].committed_offset == 5


def test_a_second_loss_and_the_loss_of_an_unknown_connection_are_ignored() -> None:
    bench = Bench()
    client = bench.client("c")
    for conn in (client.conn, client.conn, ConnectionId(99)):
        assert bench.engine.lost(conn, bench.now) == []
    token = Token(bench.engine._next_token())
    assert bench.engine.answer(client.conn, token, MetadataResponse()) == []


def test_a_connection_id_is_not_used_twice() -> None:
    bench = Bench()
    client = bench.client("c")
    with pytest.raises(InvariantViolation, match="in use"):
        bench.engine.connected(client.conn, "127.0.0.1", bench.now)


# -- log and time ----------------------------------------------------------------------------------


def test_a_write_names_the_groups_partition_and_the_time_of_day() -> None:
    bench = Bench()
    client = bench.client("c")
    bench.wait(2_000)
    client.send("OffsetCommit", commit_request(group_id="demo-group"))
    (write,) = bench.writes
    assert isinstance(write, Write)
    assert (write.partition, write.timestamp) == (15, WALL + 2_000)
    bench.carry_out(bench.engine.time_of_day(WALL, bench.now))
    client.send("OffsetCommit", commit_request(group_id="demo-group"))
    assert bench.writes[1].timestamp == WALL, "the wall clock was set back"


def test_a_refused_write_is_reported_to_the_client() -> None:
    bench = Bench()
    client = bench.client("c")
    client.send("OffsetCommit", commit_request())
    ticket = bench.writes.pop().ticket
    bench.carry_out(bench.engine.append_failed(ticket, ErrorCode.NOT_ENOUGH_REPLICAS, bench.now))
    error = client.answers[0].topics[0].partitions[0].error_code
    assert error == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.slow
def test_an_assignment_above_the_group_limit_is_stored_and_sent() -> None:
    """``kohort.max.group.bytes`` limits joins only: a larger assignment is not refused."""
    bench = Bench()
    client = bench.client("c")
    member_id = client.enter("g")
    bench.wait(1)
    bench.written()
    client.sync("g", 1, member_id, {member_id: bytes(17_000_000)})
    bench.written()
    assert client.answers[-1].error_code == ErrorCode.NONE
    assert len(client.answers[-1].assignment) == 17_000_000
    again = Bench()
    again.engine.replay(bench.log_of("g"), again.now)
    again.carry_out(again.engine.loaded(again.now))
    assert again.client("c").beat("g", 1, member_id) == ErrorCode.NONE


def test_another_engine_continues_from_the_log() -> None:
    bench = Bench()
    client, member_id = stable(bench)
    client.send(
        "OffsetCommit",
        commit_request(generation_id_or_member_epoch=1, member_id=member_id),
    )
    bench.written()
    again = Bench()
    again.engine.replay(bench.log_of("g"), again.now)
    again.carry_out(again.engine.loaded(again.now))
    assert "GroupLoaded" in again.facts
    back = again.client("c", OffsetFetch=7)
    assert back.beat("g", 1, member_id) == 0
    back.sync("g", 1, member_id)
    assert back.answers[-1].assignment == b"mine"
    back.send("OffsetFetch", OffsetFetchRequest(group_id="g", topics=None))
    assert back.answers[-1].topics[0].partitions[0].committed_offset == 5


def test_a_log_that_cannot_be_read_stops_the_start() -> None:
    with pytest.raises(ProtocolError, match="version 9"):
        Bench().engine.replay([(b"\x00\x02\x00\x01g", b"\x00\x09")], Bench().now)


def test_a_member_stays_after_a_pause_of_the_whole_process() -> None:
    bench = Bench()
    client, member_id = stable(bench)
    bench.now = Instant(bench.now + 60_000_000)
    bench.carry_out(bench.engine.stalled(60_000_000, bench.now))
    assert client.beat("g", 1, member_id) == 0


def test_deleted_topics_lose_their_offsets() -> None:
    bench = Bench()
    client = bench.client("c")
    client.send("OffsetCommit", commit_request())
    bench.written()
    bench.carry_out(bench.engine.topics_deleted(["t"], bench.now))
    bench.written()
    assert bench.log_of("g")[-1][1] is None


def test_ids_as_long_as_a_record_can_hold_are_served_and_longer_ones_are_refused() -> None:
    bench = Bench()
    client = bench.client("c" * 32_767)
    client.send("OffsetCommit", commit_request(group_id="g" * 32_767))
    bench.written()
    assert client.answers[-1].topics[0].partitions[0].error_code == ErrorCode.NONE
    client.join("g", "")
    assert client.answers[-1].error_code == ErrorCode.INVALID_REQUEST, "no id can be made of it"
    longest = bench.client("c" * 32_730)
    member_id = longest.enter("g" * 32_767)
    bench.wait(1)
    bench.written()
    longest.sync("g" * 32_767, 1, member_id, {member_id: b"mine"})
    bench.written()
    assert longest.answers[-1].assignment == b"mine"
    assert not client.closed
    good, good_id = stable(bench, "h")
    assert good.beat("h", 1, good_id) == 0


# -- determinism -----------------------------------------------------------------------------------

_STORY = """
from kohort.wire.server_connection import ServerLimits
from tests.engine.coordinator_bench import Bench
import hashlib
bench = Bench(delay=3000)
clients = [bench.client(f"c{n}") for n in range(7)]
ids = {}
for group in ("g", "h"):
    for client in clients:
        ids[group, client.name] = client.enter(group)
        bench.wait(400)
bench.wait(9000)
for group in ("g", "h"):
    plan = {m: m.encode() for (g, _), m in ids.items() if g == group}
    for client in clients:
        client.sync(group, 1, ids[group, client.name], plan)
bench.written()
for _ in range(12):
    for client in clients[:4]:
        client.beat("g", 1, ids["g", client.name])
    bench.wait(1000)
bench.written()
print(hashlib.sha256("\\n".join(bench.journal).encode()).hexdigest(), len(bench.journal))
"""


def test_the_same_events_give_the_same_bytes_under_any_hash_seed() -> None:
    root = Path(__file__).parents[2]
    told = [
        subprocess.run(
            [sys.executable, "-c", _STORY],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(root)},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert told[0] == told[1]
    assert int(told[0].split()[1]) > 100, "the story is long enough to tell"
