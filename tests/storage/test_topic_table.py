"""Stored data of topics besides their records: ids, settings, start offsets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from tests.storage.disks import content
from tests.storage.test_log_dir import NOW, append, lose_everything_unsynced, open_dir, topic
from tests.stored_records import iterate_records

from kohort.model.errors import ErrorCode
from kohort.storage.errors import CorruptLog, OffsetOutOfRange, RefusedBatch, RefusedTopic
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.files import Files, write_file
from kohort.storage.log_config import LogConfig
from kohort.storage.log_dir import LogDir
from kohort.storage.records import Record, build_batch


@pytest.fixture
def files() -> UnsyncedLossFiles:
    return UnsyncedLossFiles()


# -- ids -------------------------------------------------------------------------------------------


def test_topics_of_an_older_directory_get_ids_once(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 2))
    log_dir.create_topic(topic("users"))
    append(log_dir, "orders")
    log_dir.close()
    stored = json.loads(content(files, "/data/topics.json"))
    del stored["topics"][0]["topic_id"]
    write_file(files, "/data/topics.json", json.dumps(stored).encode())
    made = iter([b"A" * 16, b"B" * 16])
    log_dir = open_dir(files)
    log_dir.give_ids(lambda: next(made))
    assert log_dir.topics["orders"].topic_id == b"A" * 16
    assert log_dir.topics["users"].topic_id == topic("users").topic_id
    assert log_dir.topics["orders"].partitions == 2
    files.power_cut(lose_everything_unsynced)
    log_dir = open_dir(files)
    log_dir.give_ids(lambda: next(made))
    assert log_dir.topics["orders"].topic_id == b"A" * 16


def test_replicas_survive_a_power_cut_and_older_topics_have_one(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(replace(topic("wide"), replication_factor=3))
    log_dir.create_topic(replace(topic("chosen", 2), replicas=((2, 3), (3, 1))))
    log_dir.create_partitions("chosen", 3, ((2, 3), (3, 1), (1, 2)))
    log_dir.create_topic(topic("old"))
    stored = json.loads(content(files, "/data/topics.json"))
    del next(entry for entry in stored["topics"] if entry["name"] == "old")["replication_factor"]
    write_file(files, "/data/topics.json", json.dumps(stored).encode())
    files.sync_directory("/data")
    files.power_cut(lose_everything_unsynced)
    topics = open_dir(files).topics
    assert (topics["wide"].replication_factor, topics["wide"].replicas) == (3, ())
    assert topics["chosen"].replicas == ((2, 3), (3, 1), (1, 2))
    assert (topics["old"].replication_factor, topics["old"].replicas) == (1, ())


def test_replicas_of_another_number_of_partitions_are_damage(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(replace(topic("t", 2), replicas=((1,), (2,))))
    log_dir.close()
    stored = json.loads(content(files, "/data/topics.json"))
    stored["topics"][0]["replicas"].pop()
    write_file(files, "/data/topics.json", json.dumps(stored).encode())
    with pytest.raises(CorruptLog, match=r"topics\.json is damaged"):
        open_dir(files)


@pytest.mark.parametrize("wrong", ["00ff", "no hex", 7])
def test_an_invalid_topic_id_is_damage(files: UnsyncedLossFiles, wrong: object) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders"))
    log_dir.close()
    stored = json.loads(content(files, "/data/topics.json"))
    stored["topics"][0]["topic_id"] = wrong
    write_file(files, "/data/topics.json", json.dumps(stored).encode())
    with pytest.raises(CorruptLog, match=r"topics\.json is damaged"):
        open_dir(files)


def test_producer_ids_come_in_blocks(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    files.synced.clear()
    ids = [log_dir.producer_ids.allocate() for _ in range(1_000)]
    assert ids == list(range(1_000))
    assert len(files.synced) == 2
    log_dir.producer_ids.allocate()
    assert len(files.synced) == 4


@pytest.mark.parametrize("content", [b"", b"{}", b'{"next": null}', b"[]"])
def test_damage_of_the_producer_ids_is_named(files: UnsyncedLossFiles, content: bytes) -> None:
    open_dir(files).close()
    write_file(files, "/data/producer-ids.json", content)
    with pytest.raises(CorruptLog, match=r"producer-ids\.json is damaged"):
        open_dir(files)


# -- settings --------------------------------------------------------------------------------------


def test_settings_can_be_replaced_and_stay(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 2, retention_ms="5000"))
    log_dir.alter_topic("orders", {"max.message.bytes": "100"})
    assert log_dir.log("orders", 1).config.max_message_bytes == 100
    assert log_dir.log("orders", 1).config.retention_ms == LogConfig().retention_ms
    with pytest.raises(RefusedBatch):
        log_dir.log("orders", 0).append(build_batch([Record(None, bytes(200), NOW)]), NOW)
    files.power_cut(lose_everything_unsynced)
    assert open_dir(files).log("orders", 0).config.max_message_bytes == 100


def test_refused_settings_change_nothing(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", retention_ms="5000"))
    for wrong in ({"retention.ms": "-7"}, {"nonsense": "1"}):
        with pytest.raises(RefusedTopic) as refused:
            log_dir.alter_topic("orders", wrong)
        assert refused.value.code is ErrorCode.INVALID_CONFIG
    with pytest.raises(RefusedTopic):
        log_dir.alter_topic("users", {})
    assert log_dir.log("orders", 0).config.retention_ms == 5000


# -- deleted records -------------------------------------------------------------------------------


def filled(files: Files, **configs: str) -> LogDir:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("t", 1, **configs))
    for n in range(10):
        batch = build_batch(
            [Record(None, b"v", NOW + 10 * n), Record(None, b"w", NOW + 10 * n + 5)]
        )
        log_dir.log("t", 0).append(batch, NOW)
    log_dir.log("t", 0).flush()
    return log_dir


def test_a_log_begins_after_its_deleted_records(files: UnsyncedLossFiles) -> None:
    log_dir = filled(files)
    log = log_dir.log("t", 0)
    log_dir.delete_records("t", 0, 7)
    assert log.log_start_offset == 7
    with pytest.raises(OffsetOutOfRange):
        log.read(6, 1_000)
    assert [r.offset for r in iterate_records(log.read(7, 1)) if r.offset >= 7] == [7]
    assert log.offset_for_timestamp(-2)[:2] == (-1, 7)
    assert log.offset_for_timestamp(NOW)[:2] == (NOW + 35, 7), "not one that was deleted"
    assert log.offset_for_timestamp(NOW + 36)[:2] == (NOW + 40, 8)
    log_dir.delete_records("t", 0, 3)
    assert log.log_start_offset == 7, "it never goes back"
    with pytest.raises(OffsetOutOfRange):
        log_dir.delete_records("t", 0, 21)
    files.power_cut(lose_everything_unsynced)
    assert open_dir(files).log("t", 0).log_start_offset == 7


def test_the_greatest_timestamp_belongs_to_an_existing_record(files: UnsyncedLossFiles) -> None:
    log_dir = filled(files)
    late = build_batch([Record(None, b"late", NOW + 10_000)])
    log = log_dir.log("t", 0)
    log.append(late, NOW)
    log.append(build_batch([Record(None, b"v", NOW + 50)]), NOW)
    log.flush()
    assert log.offset_for_timestamp(-3)[:2] == (NOW + 10_000, 20)
    log_dir.delete_records("t", 0, 21)
    assert log.offset_for_timestamp(-3)[:2] == (NOW + 50, 21)
    log_dir.delete_records("t", 0, 22)
    assert log.offset_for_timestamp(-3)[:2] == (-1, -1)
    assert log.offset_for_timestamp(NOW)[:2] == (-1, -1)
    assert append(log_dir, "t") == 22


def test_segments_without_a_record_to_read_are_removed(files: UnsyncedLossFiles) -> None:
    log_dir = filled(files, segment_bytes="200")
    log = log_dir.log("t", 0)
    before = len(log.segments)
    log_dir.delete_records("t", 0, 11)
    assert 1 < len(log.segments) < before
    assert log.segments.first.base_offset <= 11 < log.segments.first.next_offset
    log_dir.close()
    again = open_dir(files).log("t", 0)
    assert (again.log_start_offset, again.log_end_offset) == (11, 20)


def test_a_new_topic_of_the_same_name_begins_at_0(files: UnsyncedLossFiles) -> None:
    log_dir = filled(files)
    log_dir.delete_records("t", 0, 7)
    log_dir.delete_topic("t")
    log_dir.create_topic(topic("t"))
    assert log_dir.log("t", 0).log_start_offset == 0
    log_dir.close()
    assert open_dir(files).log("t", 0).log_start_offset == 0
