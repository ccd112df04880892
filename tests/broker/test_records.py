"""Produce, Fetch, ListOffsets and their neighbours, by raw frames."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.conftest import Connect, MakeFetch, MakeProduce, RawClient, ValuesOf, bytes_of

from kohort.broker.embedded import EmbeddedBroker
from kohort.model.errors import ErrorCode
from kohort.storage.records import Record, build_batch
from kohort.wire.messages import k00_produce, k22_init_producer_id, k23_offset_for_leader_epoch

VERSIONS_OF_PRODUCE = range(3, 10)
VERSIONS_OF_FETCH = range(4, 13)


@pytest.mark.parametrize("version", VERSIONS_OF_PRODUCE)
def test_records_of_any_produce_version_are_fetched_in_every_version(
    raw: RawClient, values_of: ValuesOf, version: int
) -> None:
    raw.create("t")
    row = raw.produce("t", [b"a", b"b"], version=version)
    assert (row.error_code, row.base_offset, row.log_append_time_ms) == (0, 0, -1)
    assert raw.produce("t", [b"c"], version=version).base_offset == 2
    for fetch_version in VERSIONS_OF_FETCH:
        read = raw.fetch("t", version=fetch_version)
        assert (read.error_code, read.high_watermark) == (0, 3)
        assert values_of(read.records) == [b"a", b"b", b"c"]


def test_batches_are_stored_as_they_were_sent(raw: RawClient) -> None:
    raw.create("t")
    batch = build_batch([Record(b"k", b"v", 1_700_000_000_000, (("h", b"1"),))])
    raw.produce("t", [], records=batch)
    stored = bytes_of(raw.fetch("t"))
    # Base offset (8) and leader epoch (4, after the length) are the broker's, the rest is not.
    assert stored[8:12] + stored[16:] == batch[8:12] + batch[16:]


def test_unknown_topics_and_partitions(raw: RawClient) -> None:
    raw.create("t")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert raw.produce("nope", [b"x"]).error_code == unknown
    assert raw.produce("t", [b"x"], partition=1).error_code == unknown
    assert raw.produce("t", [b"x"], partition=-1).error_code == unknown
    assert raw.fetch("t", partition=7).error_code == unknown
    assert raw.fetch("nope").error_code == unknown
    assert raw.offset_at("nope", -1).error_code == unknown


def test_clients_cannot_write_to_the_internal_topic(raw: RawClient) -> None:
    raw.become_member("g")
    row = raw.produce("__consumer_offsets", [b"x"])
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert row.error_message is not None
    assert "broker's own" in row.error_message


def test_bad_batches_concern_their_partition_alone(raw: RawClient) -> None:
    raw.create("t", partitions=2, max_message_bytes=200)
    sound = build_batch([Record(None, b"v", int(time.time() * 1000))])
    bad_crc = sound[:-1] + bytes([sound[-1] ^ 1])
    old_magic = sound[:16] + b"\x01" + sound[17:]
    large = build_batch([Record(None, b"v" * 300, int(time.time() * 1000))])
    for records, code in (
        (bad_crc, ErrorCode.CORRUPT_MESSAGE),
        (old_magic, ErrorCode.INVALID_RECORD),
        (large, ErrorCode.MESSAGE_TOO_LARGE),
        (b"", ErrorCode.INVALID_RECORD),
        (sound + sound, ErrorCode.INVALID_RECORD),
        (sound[:40], ErrorCode.INVALID_RECORD),
    ):
        m = k00_produce
        answer = raw.ask(
            m.ProduceRequest(
                acks=-1,
                topic_data=[
                    m.TopicProduceData(
                        name="t",
                        partition_data=[
                            m.PartitionProduceData(index=0, records=records),
                            m.PartitionProduceData(index=1, records=sound),
                        ],
                    )
                ],
            )
        )
        refused, taken = answer.responses[0].partition_responses
        assert (refused.error_code, refused.base_offset) == (code, -1)
        assert refused.error_message
        assert taken.error_code == 0
    assert raw.fetch("t", partition=0).high_watermark == 0
    assert raw.fetch("t", partition=1).high_watermark == 6


def test_acks_zero_gets_no_answer_and_is_stored(
    raw: RawClient, produce_request: MakeProduce, values_of: ValuesOf
) -> None:
    raw.create("t")
    raw.send(produce_request("t", [b"a"], acks=0), answered=False)
    assert raw.produce("t", [b"b"], acks=1).base_offset == 1
    assert values_of(raw.fetch("t").records) == [b"a", b"b"]


def test_acks_zero_and_refused_loses_the_connection(
    raw: RawClient, produce_request: MakeProduce
) -> None:
    raw.send(produce_request("nope", [b"a"], acks=0), answered=False)
    assert raw.hung_up()


def test_acks_of_no_meaning_are_refused(raw: RawClient) -> None:
    raw.create("t")
    assert raw.produce("t", [b"a"], acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert raw.fetch("t").high_watermark == 0


def test_idempotent_producers(raw: RawClient, values_of: ValuesOf) -> None:
    raw.create("t")
    answer = raw.ask(k22_init_producer_id.InitProducerIdRequest())
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    other = raw.ask(k22_init_producer_id.InitProducerIdRequest())
    assert other.producer_id != answer.producer_id
    me = {"producer_id": answer.producer_id, "producer_epoch": 0}
    assert raw.produce("t", [b"a", b"b"], base_sequence=0, **me).base_offset == 0
    assert raw.produce("t", [b"c"], base_sequence=2, **me).base_offset == 2
    again = raw.produce("t", [b"a", b"b"], base_sequence=0, **me)
    assert (again.error_code, again.base_offset) == (0, 0)
    gap = raw.produce("t", [b"x"], base_sequence=9, **me)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    newer = {"producer_id": answer.producer_id, "producer_epoch": 1}
    assert raw.produce("t", [b"d"], base_sequence=0, **newer).base_offset == 3
    fenced = raw.produce("t", [b"x"], base_sequence=3, **me)
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert values_of(raw.fetch("t").records) == [b"a", b"b", b"c", b"d"]


def test_a_duplicate_is_known_after_a_restart(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    first = kohort_broker_factory(str(tmp_path / "data"))
    client = connect(first)
    client.create("t")
    me = {
        "producer_id": client.ask(k22_init_producer_id.InitProducerIdRequest()).producer_id,
        "producer_epoch": 0,
    }
    client.produce("t", [b"a"], base_sequence=0, **me)
    client.produce("t", [b"b"], base_sequence=1, **me)
    first.close()
    client = connect(kohort_broker_factory(str(tmp_path / "data")))
    assert client.produce("t", [b"b"], base_sequence=1, **me).base_offset == 1
    assert client.produce("t", [b"c"], base_sequence=2, **me).base_offset == 2
    fresh = client.ask(k22_init_producer_id.InitProducerIdRequest()).producer_id
    assert fresh != me["producer_id"]


def test_transactions_are_refused_plainly(raw: RawClient) -> None:
    answer = raw.ask(k22_init_producer_id.InitProducerIdRequest(transactional_id="tx"))
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_offsets_by_end_and_by_time(raw: RawClient) -> None:
    raw.create("t")
    now = int(time.time() * 1000)
    for offset in range(3):
        raw.produce("t", [], records=build_batch([Record(None, b"v", now + 10 * offset)]))
    for version in range(1, 8):
        assert raw.offset_at("t", -2, version=version).offset == 0
        assert raw.offset_at("t", -1, version=version).offset == 3
        row = raw.offset_at("t", now + 5, version=version)
        assert (row.error_code, row.offset, row.timestamp) == (0, 1, now + 10)
        none = raw.offset_at("t", now + 21, version=version)
        assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)
    newest = raw.offset_at("t", -3, version=7)
    assert (newest.offset, newest.timestamp) == (2, now + 20)


def test_fetching_outside_the_log(raw: RawClient) -> None:
    raw.create("t")
    raw.produce("t", [b"a"])
    assert raw.fetch("t", offset=1).error_code == 0
    assert bytes_of(raw.fetch("t", offset=1)) == b""
    for offset in (2, -1):
        row = raw.fetch("t", offset=offset, max_wait_ms=10_000)
        assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_sessions_are_declined(raw: RawClient, fetch_request: MakeFetch) -> None:
    raw.create("t")
    answer = raw.ask(fetch_request({("t", 0): 0}, session_epoch=0))
    assert (answer.error_code, answer.session_id) == (0, 0)
    answer = raw.ask(fetch_request({("t", 0): 0}, session_id=5, session_epoch=1))
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    answer = raw.ask(fetch_request({("t", 0): 0}, session_epoch=3))
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_leader_epochs_follow_the_lives_of_the_broker(
    kohort_broker_factory: Callable[..., EmbeddedBroker], connect: Connect, tmp_path: Path
) -> None:
    first = kohort_broker_factory(str(tmp_path / "data"))
    client = connect(first)
    client.create("t")
    client.produce("t", [b"a"])
    assert client.fetch("t", current_leader_epoch=0).error_code == 0
    unknown = client.fetch("t", current_leader_epoch=1)
    assert unknown.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    first.close()
    client = connect(kohort_broker_factory(str(tmp_path / "data")))
    client.produce("t", [b"b"])
    fenced = client.fetch("t", current_leader_epoch=0)
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    m = k23_offset_for_leader_epoch
    for epoch, end in ((0, (0, 1)), (1, (1, 2))):
        asked = m.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        topic = m.OffsetForLeaderTopic(topic="t", partitions=[asked])
        answer = client.ask(m.OffsetForLeaderEpochRequest(topics=[topic]))
        row = answer.topics[0].partitions[0]
        assert (row.error_code, row.leader_epoch, row.end_offset) == (0, *end)


def test_max_bytes_hold_but_for_the_first_batch(
    raw: RawClient, fetch_request: MakeFetch, values_of: ValuesOf
) -> None:
    raw.create("t", partitions=3)
    for partition in range(3):
        for _ in range(4):
            raw.produce("t", [b"x" * 1000], partition)
    positions = {("t", partition): 0 for partition in range(3)}
    answer = raw.ask(fetch_request(positions, max_bytes=10))
    assert sum(len(values_of(row.records)) for row in answer.responses[0].partitions) == 1
    answer = raw.ask(fetch_request(positions, partition_max_bytes=2500))
    assert [len(values_of(row.records)) for row in answer.responses[0].partitions] == [2, 2, 2]
    answer = raw.ask(fetch_request(positions, max_bytes=5500))
    sizes = [len(row.records) for row in answer.responses[0].partitions]
    assert 0 < sum(sizes) <= 5500


def test_partitions_take_turns_in_going_first(raw: RawClient, fetch_request: MakeFetch) -> None:
    raw.create("t", partitions=3)
    for partition in range(3):
        raw.produce("t", [b"x" * 1000], partition)
    positions = {("t", partition): 0 for partition in range(3)}
    seen = set()
    for _ in range(3):
        answer = raw.ask(fetch_request(positions, max_bytes=1))
        seen |= {row.partition_index for row in answer.responses[0].partitions if row.records}
    assert seen == {0, 1, 2}


def test_an_answer_is_bounded_whatever_the_client_allows(
    raw: RawClient, fetch_request: MakeFetch
) -> None:
    raw.create("t", partitions=2)
    for partition in range(2):
        for _ in range(6):
            raw.produce("t", [b"x" * 1_000_000], partition)
    asked = fetch_request(
        {("t", 0): 0, ("t", 1): 0}, partition_max_bytes=2**31 - 1, max_bytes=2**31 - 1
    )
    rows = raw.ask(asked).responses[0].partitions
    assert 0 < sum(len(row.records) for row in rows) <= 8 * 1024 * 1024


def test_log_append_time(raw: RawClient, values_of: ValuesOf) -> None:
    raw.create("t", message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    row = raw.produce("t", [], records=build_batch([Record(None, b"v", 5)]))
    assert before <= row.log_append_time_ms <= int(time.time() * 1000)
    stored = bytes_of(raw.fetch("t"))
    assert struct.unpack_from(">q", stored, 35)[0] == row.log_append_time_ms
    assert values_of(stored) == [b"v"]


def test_flush_messages_answers_after_the_sync(raw: RawClient) -> None:
    raw.create("t", flush_messages=1)
    assert [raw.produce("t", [b"a"]).base_offset for _ in range(3)] == [0, 1, 2]
