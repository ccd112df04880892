"""The data directory: identity, topics, producer ids, and one broker at a time."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.storage.disks import content

from kohort.model.errors import ErrorCode
from kohort.storage.errors import (
    CorruptLog,
    DirectoryInUse,
    RefusedTopic,
    StorageError,
)
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.files import Files, RealFiles, write_file
from kohort.storage.leftovers import remove_directories
from kohort.storage.log_dir import OFFSETS_TOPIC, OFFSETS_TOPIC_CONFIGS, LogDir, Topic
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000


def open_dir(
    files: Files,
    path: str = "/data",
    node_id: int = 1,
    report: Callable[[str], None] = lambda message: None,
) -> LogDir:
    return LogDir.open(
        files, path, node_id=node_id, new_cluster_id=lambda: "cluster", report=report
    )


def topic(name: str, partitions: int = 1, **configs: str) -> Topic:
    return Topic(
        name=name,
        topic_id=name.encode().ljust(16, b".")[:16],
        partitions=partitions,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )


def append(log_dir: LogDir, name: str, partition: int = 0) -> int:
    batch = build_batch([Record(b"k", b"v", NOW)])
    return log_dir.log(name, partition).append(batch, NOW).base_offset


def lose_everything_unsynced(n: int) -> int:
    return 0


@pytest.fixture
def files() -> UnsyncedLossFiles:
    return UnsyncedLossFiles()


def test_identity_is_made_once(files: UnsyncedLossFiles) -> None:
    first = open_dir(files)
    assert (first.meta.cluster_id, first.meta.node_id, first.meta.incarnation) == ("cluster", 1, 0)
    first.close()
    second = LogDir.open(
        files, "/data", node_id=1, new_cluster_id=lambda: "another", report=lambda message: None
    )
    assert (second.meta.cluster_id, second.meta.incarnation) == ("cluster", 1)


def test_every_life_has_a_greater_epoch_even_after_power_cuts(files: UnsyncedLossFiles) -> None:
    for expected in range(4):
        log_dir = open_dir(files)
        assert log_dir.meta.incarnation == expected
        files.power_cut(lose_everything_unsynced)


@pytest.mark.parametrize("killed_before_syncing_parents", [False, True])
def test_a_new_data_directory_in_new_parents_survives_a_power_cut(
    files: UnsyncedLossFiles, killed_before_syncing_parents: bool
) -> None:
    path = "/srv/kohort/data"
    if killed_before_syncing_parents:
        files.make_directory(path)
        files.kill()
    open_dir(files, path).create_topic(topic("orders"))
    files.power_cut(lose_everything_unsynced)
    again = open_dir(files, path)
    assert (again.meta.incarnation, list(again.topics)) == (1, ["orders"])


@pytest.mark.parametrize("lives_since_the_copy", [1, 2, 5])
def test_a_restored_meta_file_does_not_bring_a_leader_epoch_back(
    files: UnsyncedLossFiles, lives_since_the_copy: int
) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 2))
    log_dir.close()
    copy = content(files, "/data/meta.properties")
    for _ in range(lives_since_the_copy):
        log_dir = open_dir(files)
        append(log_dir, "orders", 1)
        log_dir.close()
    last = log_dir.meta.incarnation
    write_file(files, "/data/meta.properties", copy)
    reports: list[str] = []
    restored = open_dir(files, report=reports.append)
    assert restored.meta.incarnation == last + 1
    assert [text for text in reports if f"written in leader epoch {last};" in text]
    assert [log.leader_epoch for log in restored.logs()] == [last + 1] * 2
    offset = append(restored, "orders", 1)
    assert restored.log("orders", 1).state.epochs.epoch_of(offset) == last + 1
    restored.close()
    reports.clear()
    assert open_dir(files, report=reports.append).meta.incarnation == last + 2
    assert not reports


def test_an_older_copy_of_the_whole_directory_repeats_leader_epochs_until_they_are_raised_by_hand(
    tmp_path: Path,
) -> None:
    """Nothing in the directory shows that it is a copy: docs/reference/faults.md, D9."""
    files, path, copy = RealFiles(), str(tmp_path / "data"), tmp_path / "copy"
    log_dir = open_dir(files, path)
    log_dir.create_topic(topic("orders"))
    append(log_dir, "orders")
    log_dir.close()
    shutil.copytree(path, copy)
    for _ in range(3):
        log_dir = open_dir(files, path)
        append(log_dir, "orders")
        log_dir.close()
    last = log_dir.meta.incarnation
    shutil.rmtree(path)
    shutil.copytree(copy, path)
    restored = open_dir(files, path)
    assert restored.log("orders", 0).log_end_offset == 1, "the records since the copy are lost"
    assert restored.meta.incarnation <= last, "an epoch of the lost lives"
    restored.close()
    meta = Path(path) / "meta.properties"
    text = meta.read_text(encoding="utf-8")
    raised = text.replace(f"incarnation={restored.meta.incarnation}", f"incarnation={last}")
    meta.write_text(raised, encoding="utf-8")
    raised_dir = open_dir(files, path)
    assert raised_dir.meta.incarnation == last + 1
    assert append(raised_dir, "orders") == 1


def test_one_broker_at_a_time(files: UnsyncedLossFiles) -> None:
    first = open_dir(files)
    with pytest.raises(DirectoryInUse, match="in use by another broker; stop that one"):
        open_dir(files)
    first.close()
    open_dir(files).close()


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    held = open_dir(RealFiles(), str(tmp_path))
    code = (
        "import sys; from kohort.storage.files import RealFiles\n"
        "from kohort.storage.log_dir import LogDir\n"
        "LogDir.open(RealFiles(), sys.argv[1], node_id=1, new_cluster_id=str, report=print)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "DirectoryInUse" in refused.stderr
    held.close()
    subprocess.run(command, capture_output=True, timeout=60, check=True)


def test_another_nodes_directory_is_refused(files: UnsyncedLossFiles) -> None:
    open_dir(files).close()
    with pytest.raises(StorageError, match="belongs to node 1, and this is node 2"):
        open_dir(files, node_id=2)
    open_dir(files).close()


def test_a_newer_layout_is_refused(files: UnsyncedLossFiles) -> None:
    open_dir(files).close()
    text = content(files, "/data/meta.properties").replace(b"layout.version=1", b"layout.version=2")
    files.open("/data/meta.properties").pwrite([text], 0)
    with pytest.raises(StorageError, match=r"version 2.*knows up to 1; use a newer kohort"):
        open_dir(files)


@pytest.mark.parametrize("text", [b"", b"version=1\n", b"\xff\xfe", b"node.id=x\n"])
def test_a_foreign_meta_file_is_refused(files: UnsyncedLossFiles, text: bytes) -> None:
    files.make_directory("/data")
    files.open("/data/meta.properties", create=True).pwrite([text], 0)
    with pytest.raises(StorageError, match="not of a kohort data directory"):
        open_dir(files)


def test_a_directory_with_other_things_in_it_is_refused(files: UnsyncedLossFiles) -> None:
    files.make_directory("/data/photos")
    with pytest.raises(StorageError, match="not empty"):
        open_dir(files)
    assert files.list_directory("/data") == ["photos"]


def test_a_start_after_an_unfinished_first_start_works(files: UnsyncedLossFiles) -> None:
    open_dir(files).close()
    for name in ("meta.properties", "topics.json"):
        files.remove(f"/data/{name}")
        open_dir(files).close()


@pytest.mark.parametrize("table", [None, b"", b"{", b"\xff", b"[1, 2]", b'{"topics": [{}]}'])
def test_logs_without_their_table_are_refused(
    files: UnsyncedLossFiles, table: bytes | None
) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders"))
    log_dir.close()
    files.remove("/data/topics.json")
    if table is not None:
        write_file(files, "/data/topics.json", table)
    before = content(files, "/data/meta.properties")
    with pytest.raises(CorruptLog, match=r"/data/topics.json is .*restore"):
        open_dir(files)
    assert content(files, "/data/meta.properties") == before
    assert files.exists("/data/orders-0")


def test_topics_and_records_survive_a_power_cut(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    made = topic("orders", 3, retention_ms="1000", flush_messages="1")
    log_dir.create_topic(made)
    append(log_dir, "orders", 2)
    log_dir.log("orders", 2).flush()
    files.power_cut(lose_everything_unsynced)
    again = open_dir(files)
    assert dict(again.topics) == {"orders": made}
    assert [again.log("orders", i).log_end_offset for i in range(3)] == [0, 0, 1]
    assert again.log("orders", 0).config.retention_ms == 1000
    assert append(again, "orders", 2) == 1


def test_unknown_partitions_are_refused(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 2))
    for name, partition in (("orders", 2), ("orders", -1), ("other", 0)):
        with pytest.raises(RefusedTopic) as error:
            log_dir.log(name, partition)
        assert error.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("../x"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("naïve"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("a", 10_001), ErrorCode.INVALID_PARTITIONS),
        (topic("a", no_such="1"), ErrorCode.INVALID_CONFIG),
        (topic("a", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("a", retention_ms="-2"), ErrorCode.INVALID_CONFIG),
    ],
)
def test_bad_topics_are_refused(files: UnsyncedLossFiles, bad: Topic, code: ErrorCode) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("there"))
    before = files.list_directory("/data")
    with pytest.raises(RefusedTopic) as error:
        log_dir.create_topic(bad)
    assert error.value.code is code
    assert files.list_directory("/data") == before
    assert list(log_dir.topics) == ["there"]


def test_a_topic_may_have_the_longest_name(tmp_path: Path) -> None:
    log_dir = open_dir(RealFiles(), str(tmp_path))
    log_dir.create_topic(topic("x" * 249))
    assert append(log_dir, "x" * 249) == 0
    log_dir.close()


def test_a_topic_of_fifty_partitions_survives_a_power_cut_and_costs_as_many_syncs_as_one(
    files: UnsyncedLossFiles,
) -> None:
    log_dir = open_dir(files)
    syncs = []
    for new in (topic("one"), topic("fifty", 50)):
        files.synced.clear()
        log_dir.create_topic(new)
        syncs.append(len(files.synced))
    assert syncs[0] == syncs[1] > 0
    append(log_dir, "fifty", 49)
    log_dir.log("fifty", 49).flush()
    files.power_cut(lose_everything_unsynced)
    again = open_dir(files)
    assert list(again.topics) == ["one", "fifty"]
    assert [log.log_end_offset for log in again.logs()] == [0] * 50 + [1]


def test_partitions_can_be_added_and_not_taken_away(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 2))
    append(log_dir, "orders", 1)
    log_dir.create_partitions("orders", 4)
    assert append(log_dir, "orders", 3) == 0
    assert append(log_dir, "orders", 1) == 1
    for count in (4, 1, 10_001):
        with pytest.raises(RefusedTopic) as error:
            log_dir.create_partitions("orders", count)
        assert error.value.code is ErrorCode.INVALID_PARTITIONS
    log_dir.close()
    assert open_dir(files).topics["orders"].partitions == 4


def test_a_deleted_topic_is_gone_and_its_name_is_free(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 2))
    append(log_dir, "orders")
    log = log_dir.log("orders", 0)
    log_dir.delete_topic("orders")
    assert log.closed
    log_dir.create_topic(topic("orders", 1))
    assert append(log_dir, "orders") == 0
    log_dir.delete_topic("orders")
    with pytest.raises(RefusedTopic):
        log_dir.delete_topic("orders")
    log_dir.close()
    assert not open_dir(files).topics


def removed(log_dir: LogDir) -> list[str]:
    """Remove the rest of deleted topics; returns the names of the removed directories."""
    directories = log_dir.leftovers.take_removable()
    remove_directories(log_dir.files, directories, lambda: False)
    return [directory.rpartition("/")[2] for directory in directories]


def test_directories_of_a_deleted_topic_are_renamed_in_slices(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 5))
    append(log_dir, "orders")
    log_dir.delete_topic("orders")
    assert files.exists("/data/orders-4"), "nothing waits for a directory"
    assert [log_dir.put_aside(2) for _ in range(3)] == [False, False, True]
    assert not files.exists("/data/orders-4")
    assert removed(log_dir) == [f"0.{n}-delete" for n in range(1, 6)]
    assert removed(log_dir) == []
    assert [name for name in files.list_directory("/data") if "delete" in name] == []


@pytest.mark.parametrize("slices", [0, 1, 3])
def test_the_next_start_finishes_a_deletion_that_a_crash_cut_short(
    files: UnsyncedLossFiles, slices: int
) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 3))
    append(log_dir, "orders")
    log_dir.delete_topic("orders")
    for _ in range(slices):
        log_dir.put_aside(1)
    files.power_cut(lose_everything_unsynced)
    log_dir = open_dir(files)
    assert not log_dir.topics
    assert not files.exists("/data/orders-0")
    log_dir.create_topic(topic("orders", 1))
    assert append(log_dir, "orders") == 0
    assert len(removed(log_dir)) == 3
    log_dir.close()
    assert list(open_dir(files).topics) == ["orders"]


def test_a_deleted_topics_name_is_free_before_its_directories_are_renamed(
    files: UnsyncedLossFiles,
) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 3))
    append(log_dir, "orders")
    log_dir.delete_topic("orders")
    log_dir.put_aside(1)
    log_dir.create_topic(topic("orders", 2))
    assert append(log_dir, "orders") == 0
    assert len(removed(log_dir)) == 3
    log_dir.close()
    assert open_dir(files).log("orders", 0).log_end_offset == 1


def test_directories_that_cannot_be_renamed_are_renamed_later() -> None:
    class Stubborn(UnsyncedLossFiles):
        refuse = True

        def replace(self, source: str, target: str) -> None:
            if self.refuse and source.startswith("/data/orders-"):
                raise OSError(5, "no")
            super().replace(source, target)

    disk = Stubborn()
    log_dir = open_dir(disk)
    log_dir.create_topic(topic("orders"))
    append(log_dir, "orders")
    log_dir.delete_topic("orders")
    with pytest.raises(StorageError, match="cannot put deleted topics aside"):
        log_dir.put_aside(9)
    with pytest.raises(StorageError):
        log_dir.create_topic(topic("orders"))
    disk.refuse = False
    log_dir.create_topic(topic("orders"))
    assert append(log_dir, "orders") == 0


def test_a_cancelled_removal_stops(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders", 3))
    log_dir.delete_topic("orders")
    log_dir.put_aside(3)
    remove_directories(files, log_dir.leftovers.take_removable(), lambda: True)
    log_dir.close()
    assert len(removed(open_dir(files))) == 3


def test_a_missing_partition_directory_is_damage_and_no_empty_log(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("orders"))
    log_dir.close()
    files.remove_directory("/data/orders-0")
    with pytest.raises(CorruptLog, match="/data/orders-0 is missing"):
        open_dir(files)


def test_creating_a_topic_on_a_full_disk_creates_nothing(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    files.capacity = files.used()
    with pytest.raises(StorageError, match="cannot create topic"):
        log_dir.create_topic(topic("orders", 3))
    assert not log_dir.topics
    files.capacity = None
    log_dir.create_topic(topic("orders", 3))
    assert append(log_dir, "orders", 2) == 0


def test_the_offsets_topic_is_synced_and_compacted(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(
        Topic(name=OFFSETS_TOPIC, topic_id=bytes(16), partitions=1, configs=OFFSETS_TOPIC_CONFIGS)
    )
    log = log_dir.log(OFFSETS_TOPIC, 0)
    assert log.config.sync_before_answer
    assert (log.config.compact, log.config.delete) == (True, False)
    assert log.append(build_batch([Record(b"k", b"v", NOW)]), NOW).wait_for_sync
    assert log_dir.topics[OFFSETS_TOPIC].internal


@given(st.lists(st.sampled_from(["take", "kill", "power cut", "close"]), max_size=30))
def test_no_producer_id_is_given_twice(steps: list[str]) -> None:
    files = UnsyncedLossFiles()
    log_dir = open_dir(files)
    given_out: list[int] = []
    for step in steps:
        if step == "take":
            given_out.append(log_dir.producer_ids.allocate())
            continue
        if step == "close":
            log_dir.close()
        elif step == "kill":
            files.kill()
        else:
            files.power_cut(lose_everything_unsynced)
        log_dir = open_dir(files)
    assert len(given_out) == len(set(given_out))


def test_closing_reports_a_failed_sync_and_gives_the_lock_back(files: UnsyncedLossFiles) -> None:
    log_dir = open_dir(files)
    log_dir.create_topic(topic("a"))
    log_dir.create_topic(topic("b"))
    append(log_dir, "a")
    append(log_dir, "b")
    files.fail_sync = lambda path: path.startswith("/data/a-0/")
    with pytest.raises(StorageError, match="a sync failed"):
        log_dir.close()
    files.fail_sync = lambda path: False
    files.power_cut(lose_everything_unsynced)
    again = open_dir(files)
    assert again.log("b", 0).log_end_offset == 1
