"""Abuse over the wire by strangers and by members: A1 to A30, S9.

Single frames that are no requests are in tests/broker/test_bad_input.py, limits of connections in
tests/broker/test_limits.py.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable

import pytest
from tests.broker.conftest import Connect, produce_request
from tests.faults.conftest import MakeMember
from tests.faults.members import SUBSCRIPTION, Member, committed, described, form
from tests.waiting import until

from kohort.broker.embedded import EmbeddedBroker
from kohort.client.admin import Admin
from kohort.client.errors import ClientError
from kohort.model.errors import ErrorCode
from kohort.storage.compression import CompressionType
from kohort.storage.record_batch import MAGIC, BatchHeader
from kohort.storage.records import Record, assemble, build_batch
from kohort.testing.fault_proxy import FaultProxy
from kohort.wire.codec import encode_request
from kohort.wire.messages import k18_api_versions
from kohort.wire.messages.k12_heartbeat import HeartbeatRequest

FINE = k18_api_versions.ApiVersionsRequest()
LONG_MS = 30_000
MIB = 1 << 20


Pair = tuple[Member, Member]


@pytest.fixture
def group(member: MakeMember) -> Pair:
    """A leader and a follower in one stable generation."""
    one, two = member(session_ms=LONG_MS), member(session_ms=LONG_MS)
    form([one, two])
    leader, follower = (one, two) if one.leader else (two, one)
    return leader, follower


@pytest.mark.parametrize(
    ("field", "what"),
    [
        (b"\xff" * 10, "a8 varint of ten bytes"),
        (b"\x80" * 9 + b"\x02", "a8 varint beyond 64 bits"),
        (b"\xff\xff\xff\xff\x0f", "a8 length of 4 GiB"),
        (b"\x00", "a8 null where none may be"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_a8_varints_that_lie_cost_their_own_connection(
    broker: EmbeddedBroker, connect: Connect, field: bytes, what: str
) -> None:
    head = struct.pack(">hhih", 12, 4, 1, -1) + b"\x00"
    bad, good = connect(broker), connect(broker)
    bad.sock.sendall(struct.pack(">i", len(head) + len(field)) + head + field)
    assert bad.hung_up(), what
    assert good.ask(FINE).error_code == 0


@pytest.mark.parametrize(
    "tags",
    [b"\xff\xff\xff\xff\x0f", b"\x7f\x00\x00", b"\x01\x00\x7f", b"\x01\x00\xff\xff\xff\xff\x0f"],
    ids=["huge count", "count", "size", "huge size"],
)
def test_a9_tagged_fields_beyond_their_frame_cost_their_own_connection(
    broker: EmbeddedBroker, connect: Connect, tags: bytes
) -> None:
    whole = encode_request(HeartbeatRequest(group_id="g", member_id="m"), 4, 1, None)
    body = whole[4:-1] + tags
    bad = connect(broker)
    bad.sock.sendall(struct.pack(">i", len(body)) + body)
    assert bad.hung_up()


def test_a10_odd_characters_in_names_are_taken_and_escaped_in_the_log(
    member: MakeMember, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    odd = member(group="g\x00\n[line] of its own\r\u202e", session_ms=LONG_MS)
    assert (odd.join(), odd.sync()) == (0, 0)
    assert described(odd.client, odd.group)[0] == "Stable"
    lines = [record for record in caplog.records if "of its own" in record.getMessage()]
    assert lines
    assert not any(set(line.getMessage()) & set("\x00\n\r\u202e") for line in lines)


def test_a11_group_ids_empty_and_very_long(member: MakeMember) -> None:
    empty = member(group="", session_ms=LONG_MS)
    empty.send_join()
    assert empty.joined() == ErrorCode.INVALID_GROUP_ID
    long = member(group="x" * 32_767, session_ms=LONG_MS)
    assert long.join() == 0


def test_a12_metadata_beyond_its_bound_is_refused_at_the_join_with_the_numbers(
    member: MakeMember, caplog: pytest.LogCaptureFixture
) -> None:
    big = member(metadata=SUBSCRIPTION + bytes(20 * MIB), session_ms=LONG_MS)
    big.send_join()
    code = big.joined()
    if code == ErrorCode.MEMBER_ID_REQUIRED:
        big.send_join()
        code = big.joined()
    assert code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert str(len("range") + len(big.metadata)) in caplog.text
    small = member(session_ms=LONG_MS)
    assert (small.join(), small.sync()) == (0, 0)


def test_a13_a_flood_of_joins_without_an_id_makes_no_members(
    broker: EmbeddedBroker, connect: Connect, member: MakeMember
) -> None:
    flood = member(group="flood", session_ms=LONG_MS)
    ids = set()
    for _ in range(300):
        flood.id = ""
        flood.send_join()
        assert flood.joined() == ErrorCode.MEMBER_ID_REQUIRED
        ids.add(flood.id)
    assert len(ids) == 300
    assert described(connect(broker), "flood")[1] == []


def test_a14_a_full_group_takes_nobody_more(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect
) -> None:
    broker = kohort_broker_factory(group_max_size=2)
    group = [Member(connect(broker), session_ms=LONG_MS) for _ in range(2)]
    form(group)
    third = Member(connect(broker), session_ms=LONG_MS)
    third.send_join()
    assert third.joined() == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {one.beat() for one in group} == {0}


@pytest.mark.parametrize("session_ms", [-1, 0, 1, 36_000_000, 2**31 - 1])
def test_a16_session_timeouts_outside_the_bounds(member: MakeMember, session_ms: int) -> None:
    wild = member(session_ms=session_ms)
    wild.send_join()
    assert wild.joined() == ErrorCode.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize("rebalance_ms", [-(2**31), -1, 0, 2**31 - 1])
def test_a17_rebalance_timeouts_of_any_size_hold_nobody_for_days(
    member: MakeMember, rebalance_ms: int
) -> None:
    """A member that does not come back is removed at the end of its session."""
    wild = member(session_ms=500, rebalance_ms=rebalance_ms)
    assert (wild.join(), wild.sync()) == (0, 0)
    other = member(session_ms=LONG_MS)
    assert other.join() == 0
    assert other.others == [other.id]


def test_a18_replays_and_guesses_change_nothing(group: Pair, member: MakeMember) -> None:
    leader, follower = group
    stranger = member(session_ms=LONG_MS)
    stranger.id, stranger.generation = "consumer-1-guessed", leader.generation
    told = (stranger.beat(), stranger.commit(9), stranger.leave())
    assert set(told) == {ErrorCode.UNKNOWN_MEMBER_ID}
    stranger.id = follower.id
    for generation in (leader.generation - 1, leader.generation + 1, 2**31 - 1):
        stranger.generation = generation
        assert stranger.beat() == ErrorCode.ILLEGAL_GENERATION
        assert stranger.commit(9) == ErrorCode.ILLEGAL_GENERATION
    assert committed(leader.client) == -1
    assert (leader.beat(), follower.beat()) == (0, 0)


def test_a19_p9_assignments_of_a_follower_and_for_unknown_members_are_ignored(
    member: MakeMember,
) -> None:
    group = [member(session_ms=LONG_MS) for _ in range(3)]
    form(group)
    leader = next(one for one in group if one.leader)
    follower, left_out = (one for one in group if not one.leader)
    plan = dict.fromkeys(leader.others, b"stolen")
    follower.send_sync(plan)
    assert follower.synced() == 0
    assert follower.assignment == leader.plan()[follower.id]
    # A new round, in which the leader forgets one member and names one that there is not.
    leader.send_join()
    others = [one for one in group if one is not leader]
    for one in others:
        one.beat_until(ErrorCode.REBALANCE_IN_PROGRESS)
        one.send_join()
    assert [one.joined() for one in group] == [0, 0, 0]
    now = next(one for one in group if one.leader)
    assert now is leader
    leader.send_sync({leader.id: b"all", follower.id: b"\x00garbage", "nobody": b"something"})
    for one in others:
        one.send_sync()
    assert [one.synced() for one in group] == [0, 0, 0]
    assert (leader.assignment, follower.assignment) == (b"all", b"\x00garbage")
    assert left_out.assignment == b""


def test_a20_inconsistent_and_missing_protocols(group: Pair, member: MakeMember) -> None:
    from kohort.wire.messages import k11_join_group as m

    leader, follower = group
    stranger = member(session_ms=LONG_MS)
    shapes = [("connect", "range"), ("consumer", "unheard-of"), ("consumer", None), ("", "range")]
    for kind, name in shapes:
        protocols = [m.JoinGroupRequestProtocol(name=name, metadata=b"")] if name else []
        request = m.JoinGroupRequest(
            group_id="g",
            session_timeout_ms=LONG_MS,
            rebalance_timeout_ms=LONG_MS,
            protocol_type=kind,
            protocols=protocols,
        )
        answer = stranger.client.ask(request)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, (kind, name)
    assert (leader.beat(), follower.beat()) == (0, 0)


def test_a22_leaving_for_somebody_else_is_the_administrators_way(
    group: Pair, member: MakeMember, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leader, follower = group
    stranger = member(session_ms=LONG_MS)
    stranger.id = follower.id
    assert stranger.leave() == 0
    assert follower.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert leader.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert any(follower.id in line for line in caplog.messages), "and it is in the log"


def test_a23_commits_of_any_shape(group: Pair) -> None:
    leader, _ = group
    assert leader.commit(1, metadata="x" * 4_097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert leader.commit(1, partition=99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for offset in (-5, 2**63 - 1, 3):
        assert leader.commit(offset) == 0, "the range is not looked at, as in Kafka"
        assert committed(leader.client) == offset


def test_a27_one_correlation_id_for_everything(broker: EmbeddedBroker, connect: Connect) -> None:
    client = connect(broker)
    for _ in range(3):
        client.sock.sendall(encode_request(FINE, 3, 77, "same") * 3)
    sizes = set()
    for _ in range(9):
        frame = client._exactly(struct.unpack(">i", client._exactly(4))[0])
        assert struct.unpack_from(">i", frame) == (77,)
        sizes.add(len(frame))
    assert len(sizes) == 1


@pytest.mark.slow
@pytest.mark.parametrize("codec", [c for c in CompressionType if c is not CompressionType.NONE])
def test_a28_bombs_and_lying_lengths_are_refused_where_records_are_looked_into(
    broker: EmbeddedBroker, connect: Connect, codec: CompressionType
) -> None:
    """A compacted topic wants keys, so the broker reads what it stores."""
    client = connect(broker)
    client.create("compacted", cleanup_policy="compact")
    honest = build_batch([Record(b"k", b"v", 1)], compression=codec)
    assert client.ask(produce_request("compacted", (), records=honest)).responses
    # Snappy's best is a twentieth; the others make next to nothing of zeros.
    bomb = _batch_of(bytes((15 if codec is CompressionType.SNAPPY else 200) * MIB), codec)
    assert len(bomb) < MIB
    row = client.ask(produce_request("compacted", (), records=bomb)).responses[0]
    assert row.partition_responses[0].error_code in (
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
    )
    again = build_batch([Record(b"k", b"v", 1)])
    row = client.ask(produce_request("compacted", (), records=again)).responses[0]
    assert row.partition_responses[0].error_code == 0


def _batch_of(section: bytes, codec: CompressionType) -> bytes:
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=int(codec),
        last_offset_delta=0,
        base_timestamp=1,
        max_timestamp=1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=1,
    )
    return assemble(header, section)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: struct.pack(">i", 2**31 - 1) + frame[4:],
        lambda frame: struct.pack(">i", -7) + frame[4:],
        lambda frame: frame[:4] + struct.pack(">i", 12_345) + frame[8:],
        lambda frame: frame[:4] + frame[4:8] + b"\xff" * (len(frame) - 8),
    ],
    ids=["2 GiB", "negative", "correlation id", "noise"],
)
def test_a30_a_hostile_answer_costs_its_connection_and_not_the_client(
    broker: EmbeddedBroker,
    kohort_fault_proxy: Callable[..., FaultProxy],
    change: Callable[[bytes], bytes],
) -> None:
    proxy = kohort_fault_proxy(broker.bootstrap_servers)
    hostile = proxy.change_answer("ListGroups", change)
    with Admin(bootstrap_servers=proxy.bootstrap_servers, request_timeout_ms=2_000) as admin:
        with contextlib.suppress(ClientError):
            admin.list_groups()
        assert hostile
        until(lambda: _lists(admin), "a list of groups")


def _lists(admin: Admin) -> bool:
    try:
        admin.list_groups()
    except ClientError:
        return False
    return True


def test_s9_ids_and_reasons_with_line_breaks_start_no_line_of_their_own(
    broker: EmbeddedBroker, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    from kohort.wire.messages import k11_join_group as m

    caplog.set_level(logging.INFO)
    client = connect(broker)
    evil = "x\n[2026-01-01 00:00:00,000] INFO forged\r\x1b[2J" + "y" * 20_000
    request = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=LONG_MS,
        rebalance_timeout_ms=LONG_MS,
        group_instance_id="evil\nforged",
        protocol_type="consumer",
        protocols=[m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
        reason=evil,
    )
    data = encode_request(request, 9, 1, "client\nforged")
    client.sock.sendall(data)
    client._exactly(struct.unpack(">i", client._exactly(4))[0])
    messages = [record.getMessage() for record in caplog.records]
    assert any("forged" in message for message in messages)
    assert not any(set(message) & set("\n\r\x1b") for message in messages)
    assert all(len(message) < 10_000 for message in messages)


@pytest.mark.parametrize("tags", [b"\x02\x05\x00\x05\x00", b"\x02\x06\x00\x05\x00"])
def test_a9_unknown_tagged_fields_twice_or_unsorted_are_passed_over_as_kafka_does(
    broker: EmbeddedBroker, connect: Connect, tags: bytes
) -> None:
    whole = encode_request(HeartbeatRequest(group_id="g", member_id="m"), 4, 1, None)
    body = whole[4:-1] + tags
    odd = connect(broker)
    odd.sock.sendall(struct.pack(">i", len(body)) + body)
    frame = odd._exactly(struct.unpack(">i", odd._exactly(4))[0])
    assert struct.unpack_from(">i", frame) == (1,)
