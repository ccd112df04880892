"""Keys and values of ``__consumer_offsets``: kohort's, a real Kafka's, and invalid ones."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.stored_records import iterate_records

from kohort.coordinator.records import (
    CommittedOffset,
    GenerationRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
    Record,
    ReservedGeneration,
)
from kohort.model.errors import ProtocolError
from kohort.model.ids import (
    GenerationId,
    GroupId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.instants import WallMillis
from kohort.schema import encode
from kohort.storage import records as batches
from kohort.storage.group_records import (
    GroupMember,
    GroupMetadataValue,
    OffsetCommitValue,
    read_record,
    write_record,
)
from kohort.testing.kafka_jars import installed
from kohort.testing.real_kafka import RealKafka, absence

SEGMENT = Path(__file__).parent / "data" / "consumer_offsets_kafka_4.3.1.segment"
"""A partition of ``__consumer_offsets`` as Kafka 4.3.1 left it on disk: five classic groups, one of
them deleted and two of them simple, and a group of the new protocol."""

text = st.text(max_size=20)
int32 = st.integers(-(2**31), 2**31 - 1)
timestamps = st.integers(0, 2**62)

offsets = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=text,
    commit_timestamp=timestamps,
    topic_id=st.one_of(st.none(), st.binary(min_size=16, max_size=16).filter(any)),
)
expiring = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**62),
    metadata=text,
    commit_timestamp=timestamps,
    expire_timestamp=timestamps,
)
members = st.builds(
    MemberMetadata,
    member_id=text,
    group_instance_id=st.one_of(st.none(), text),
    client_id=text,
    client_host=text,
    rebalance_timeout_ms=int32,
    session_timeout_ms=int32,
    subscription=st.binary(max_size=40),
    assignment=st.binary(max_size=40),
)
groups = st.builds(
    GroupMetadata,
    protocol_type=text,
    generation_id=int32,
    protocol_name=st.one_of(st.none(), text),
    leader_id=st.one_of(st.none(), text),
    current_state_timestamp=timestamps,
    members=st.lists(members, max_size=3).map(tuple),
)
records = st.one_of(
    st.builds(
        OffsetRecord,
        group_id=text,
        partition=st.builds(TopicPartition, topic=text, partition=int32),
        value=st.one_of(st.none(), offsets, expiring),
    ),
    st.builds(GroupRecord, group_id=text, value=st.one_of(st.none(), groups)),
    st.builds(
        GenerationRecord,
        group_id=text,
        value=st.one_of(
            st.none(),
            st.builds(
                ReservedGeneration,
                generation_id=int32,
                static_members=st.lists(st.tuples(text, text), max_size=3).map(tuple),
            ),
        ),
    ),
)


@given(record=records)
def test_written_records_are_read_back(record: Record) -> None:
    assert read_record(*write_record(record)) == record


def test_a_committed_offset_is_written_byte_for_byte_as_kafka_does() -> None:
    """Key type 1; value version 4, which is flexible: compact string, then no tagged fields."""
    record = OffsetRecord(
        group_id=GroupId("g"),
        partition=TopicPartition("t", 3),
        value=CommittedOffset(
            offset=5, leader_epoch=2, metadata="m", commit_timestamp=WallMillis(7)
        ),
    )
    key, value = write_record(record)
    assert key.hex() == "000100016700017400000003"
    assert value is not None
    assert value.hex() == ("0004000000000000000500000002026d000000000000000700")


def real_records() -> list[batches.Record]:
    return list(iterate_records(SEGMENT.read_bytes()))


def test_a_log_that_a_real_kafka_wrote_is_read_whole() -> None:
    read = [read_record(r.key, r.value) for r in real_records()]
    assert len(read) == 22
    assert sum(1 for record in read if record is None) == 5, "the new protocol's records"
    groups = {r.group_id: r.value for r in read if isinstance(r, GroupRecord)}
    assert groups[GroupId("doomed")] is None
    left = groups[GroupId("left")]
    assert left is not None
    assert (left.generation_id, left.protocol_type, left.members) == (2, "consumer", ())
    static = groups[GroupId("static")]
    assert static is not None
    assert static.protocol_name == "range"
    assert static.leader_id == static.members[0].member_id
    assert [m.group_instance_id for m in static.members] == ["inst-1"]
    assert static.members[0].session_timeout_ms == 30_000
    kept = {(r.group_id, str(r.partition)): r.value for r in read if isinstance(r, OffsetRecord)}
    committed = {key: value.offset if value else None for key, value in kept.items()}
    assert committed == {
        ("dynamic", "t-0"): 5,
        ("dynamic", "t-1"): 7,
        ("static", "u-0"): 3,
        ("left", "u-0"): 9,
        ("simple", "t-0"): 11,
        ("simple", "t-1"): 12,
        ("doomed", "t-0"): None,
        ("kip848", "t-0"): 21,
    }


def test_records_of_a_real_kafka_are_written_again_byte_for_byte() -> None:
    for record in real_records():
        read = read_record(record.key, record.value)
        if read is not None:
            assert write_record(read) == (record.key, record.value)


@pytest.mark.parametrize("version", range(5))
def test_offsets_of_every_version_are_read(version: int) -> None:
    stored = OffsetCommitValue(
        offset=5, leader_epoch=2, metadata="m", commit_timestamp=7, expire_timestamp=9
    )
    key, _ = write_record(
        OffsetRecord(group_id=GroupId("g"), partition=TopicPartition("t", 0), value=None)
    )
    read = read_record(key, version.to_bytes(2, "big") + encode(stored, version))
    assert isinstance(read, OffsetRecord)
    assert read.value == CommittedOffset(
        offset=5,
        leader_epoch=2 if version >= 3 else -1,
        metadata="m",
        commit_timestamp=WallMillis(7),
        expire_timestamp=WallMillis(9) if version == 1 else None,
    )


@pytest.mark.parametrize("version", range(5))
def test_groups_of_every_version_are_read(version: int) -> None:
    stored = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=7,
        members=[
            GroupMember(
                member_id="m",
                group_instance_id="i",
                client_id="c",
                client_host="/h",
                rebalance_timeout_ms=60,
                session_timeout_ms=10,
                subscription=b"s",
                assignment=b"a",
            )
        ],
    )
    key, _ = write_record(GroupRecord(group_id=GroupId("g"), value=None))
    read = read_record(key, version.to_bytes(2, "big") + encode(stored, version))
    assert isinstance(read, GroupRecord)
    assert read.value is not None
    assert read.value.current_state_timestamp == (7 if version >= 2 else -1)
    (member,) = read.value.members
    assert member.rebalance_timeout_ms == (60 if version >= 1 else -1)
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert (member.subscription, member.assignment) == (b"s", b"a")


def test_the_older_key_type_of_offsets_is_read_too() -> None:
    record = OffsetRecord(group_id=GroupId("g"), partition=TopicPartition("t", 0), value=None)
    key, value = write_record(record)
    assert read_record(b"\x00\x00" + key[2:], value) == record


@pytest.mark.parametrize("kind", [3, 8, 16, 23, 32_767])
def test_types_of_other_group_protocols_are_skipped(kind: int) -> None:
    assert read_record(kind.to_bytes(2, "big") + b"whatever", b"\x00\x63") is None


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (None, b"", "typed key"),
        (b"\x00", b"", "typed key"),
        (b"\x00\x02\x00\x01g", b"\x00\x05", r"GroupMetadataValue .* has version 5, but .* 0-4"),
        (b"\x00\x02\x00\x01g", b"\xff\xff", "has version -1"),
        (b"\x00\x02\x00\x01g", b"\x00", "1 bytes long"),
        (b"\x00\x02\x00\x01g", b"\x00\x03\x00", "GroupMetadataValue"),
        (b"\x00\x02\x00\x09g", None, "GroupMetadataKey"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x09", "has version 9"),
    ],
)
def test_an_unreadable_record_is_an_error_and_not_skipped(
    key: bytes | None, value: bytes | None, message: str
) -> None:
    with pytest.raises(ProtocolError, match=message):
        read_record(key, value)


@pytest.mark.slow
@pytest.mark.real_kafka
def test_kafkas_own_reader_reads_our_records(tmp_path: Path) -> None:
    """``kafka-dump-log --offsets-decoder`` over a segment of our records."""
    if installed() is None:
        pytest.skip(absence())
    written: list[Record] = [
        GroupRecord(
            group_id=GroupId("g"),
            value=GroupMetadata(
                protocol_type=ProtocolType("consumer"),
                generation_id=GenerationId(4),
                protocol_name=ProtocolName("range"),
                leader_id=MemberId("a-1"),
                current_state_timestamp=WallMillis(7),
                members=(
                    MemberMetadata(
                        member_id=MemberId("a-1"),
                        group_instance_id=None,
                        client_id="a",
                        client_host="/127.0.0.1",
                        rebalance_timeout_ms=60_000,
                        session_timeout_ms=10_000,
                        subscription=bytes.fromhex("0000000000010001740000000000"),
                        assignment=bytes.fromhex("000000000001000174000000010000000000000000"),
                    ),
                ),
            ),
        ),
        OffsetRecord(
            group_id=GroupId("g"),
            partition=TopicPartition("t", 0),
            value=CommittedOffset(
                offset=5, leader_epoch=2, metadata="note", commit_timestamp=WallMillis(7)
            ),
        ),
        OffsetRecord(
            group_id=GroupId("g"),
            partition=TopicPartition("t", 1),
            value=CommittedOffset(
                offset=6, commit_timestamp=WallMillis(7), expire_timestamp=WallMillis(99)
            ),
        ),
        GroupRecord(group_id=GroupId("h"), value=None),
        GenerationRecord(
            group_id=GroupId("h"),
            value=ReservedGeneration(generation_id=GenerationId(7)),
        ),
    ]
    segment = tmp_path / "00000000000000000000.log"
    pairs = [write_record(record) for record in written]
    segment.write_bytes(batches.build_batch([batches.Record(k, v, 7) for k, v in pairs]))
    dumped = RealKafka(tmp_path / "unused").tool(
        "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", str(segment)
    )
    assert '"generation":4' in dumped
    assert '"memberId":"a-1"' in dumped
    assert '"offset":5,"leaderEpoch":2,"metadata":"note","commitTimestamp":7' in dumped
    assert '"expireTimestamp":99' in dumped
    assert '"group":"h"' in dumped
