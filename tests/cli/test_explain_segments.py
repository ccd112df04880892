"""``kohort explain`` on segment files of ``__consumer_offsets``: whole, cut, damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kohort.cli.explain.command import explain
from kohort.coordinator.records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
)
from kohort.model.ids import (
    GenerationId,
    GroupId,
    MemberId,
    ProtocolName,
    ProtocolType,
    TopicPartition,
)
from kohort.model.instants import WallMillis
from kohort.storage.compression import CompressionType
from kohort.storage.group_records import write_record
from kohort.storage.records import Record, build_batch

START_MS = 1_795_645_896_000
SUBSCRIBED = bytes.fromhex("0000000000010001740000000000")


def assigned(*numbers: int) -> bytes:
    """An assignment of partitions of the topic ``t``."""
    parts = b"".join(number.to_bytes(4, "big") for number in numbers)
    head = bytes.fromhex("000000000001000174") + len(numbers).to_bytes(4, "big")
    return head + parts + bytes(4)


def group(generation: int, at_ms: int, **members: bytes) -> Record:
    """The record of a generation; each member's client id is the beginning of its member id."""
    value = GroupMetadata(
        protocol_type=ProtocolType("consumer"),
        generation_id=GenerationId(generation),
        protocol_name=ProtocolName("range"),
        leader_id=None,
        current_state_timestamp=WallMillis(at_ms),
        members=tuple(
            MemberMetadata(
                member_id=MemberId(f"{name}-1"),
                group_instance_id=None,
                client_id=name,
                client_host="/127.0.0.1",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=10_000,
                subscription=SUBSCRIBED,
                assignment=assignment,
            )
            for name, assignment in members.items()
        ),
    )
    return Record(*write_record(GroupRecord(group_id=GroupId("g"), value=value)), at_ms)


def commit(partition: int, offset: int, at_ms: int) -> Record:
    value = CommittedOffset(offset, commit_timestamp=WallMillis(at_ms))
    place = TopicPartition("t", partition)
    return Record(*write_record(OffsetRecord(GroupId("g"), place, value)), at_ms)


BATCHES = [
    build_batch([group(1, START_MS, one=assigned(0, 1))]),
    build_batch([commit(n, 5, START_MS + 1_000) for n in (0, 1)], base_offset=1),
    build_batch(
        [group(2, START_MS + 2_000, one=assigned(0), two=assigned(1))],
        base_offset=3,
        compression=CompressionType.GZIP,
    ),
    build_batch([commit(n, 9, START_MS + 4_000) for n in (0, 1)], base_offset=4),
]


def told(tmp_path: Path, data: bytes) -> tuple[list[dict[str, Any]], str]:
    """The rebalances and the notes of a segment in a broker's folder."""
    folder = tmp_path / "__consumer_offsets-7"
    folder.mkdir()
    (folder / "00000000000000000000.log").write_bytes(data)
    done = CliRunner().invoke(explain, [str(folder / "00000000000000000000.log"), "--json"])
    assert done.exit_code == 0
    found = json.loads(done.stdout)["groups"]
    assert [each["offsets_partition"] for each in found] == [7] * len(found)
    return [row for each in found for row in each["rebalances"]], done.stderr


def test_a_segment_tells_what_the_live_topic_tells(tmp_path: Path) -> None:
    (row,), notes = told(tmp_path, b"".join(BATCHES) + bytes(4_096))
    assert (row["cause"], row["member"], row["host"]) == (
        "a new member joined",
        "two-1",
        "/127.0.0.1",
    )
    assert (row["before"], row["generation"], row["moved"], row["needless"]) == (1, 2, 1, 0)
    assert [stop["end"] - stop["begin"] for stop in row["stops"]] == [3.0, 3.0]
    assert row["place"]["line"] == 3, "the offset of the record"
    assert notes == "", "the room that a broker reserves after the records is no damage"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-3], "is not complete"),
        (lambda data: data[:-3] + b"???", "checksum"),
        (lambda data: data + b"2026-03-01 INFO this is no batch of records" * 3, "no record batch"),
    ],
    ids=["cut", "damaged", "followed by text"],
)
def test_a_damaged_segment_is_told_and_its_beginning_is_explained(
    tmp_path: Path, change: Any, said: str
) -> None:
    (row,), notes = told(tmp_path, change(b"".join(BATCHES)))
    assert row["generation"] == 2
    assert said in notes
    assert "the records before it were read" in notes
