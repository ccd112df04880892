"""Opening a log: the bytes that are cut, refused, or need not be read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.storage.disks import content, cut, damage
from tests.stored_records import iterate_records

from kohort.storage.errors import CorruptLog
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.files import Files
from kohort.storage.log_config import LogConfig
from kohort.storage.partition_log import PartitionLog
from kohort.storage.record_batch import HEADER_SIZE
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=1_500, index_interval_bytes=200)
FIRST = f"{DIRECTORY}/{0:020d}.log"


def batch(size: int = 100, *, sequence: int = -1) -> bytes:
    return build_batch(
        [Record(b"k", b"v" * size, NOW)],
        producer_id=-1 if sequence < 0 else 1,
        producer_epoch=-1 if sequence < 0 else 0,
        base_sequence=sequence,
    )


SIZE = len(batch())


class Disk(UnsyncedLossFiles):
    """A disk with one log that is opened several times."""

    def __init__(self, config: LogConfig = SMALL) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.config = config
        self.log = self.reopen()

    def reopen(self, *, machine_restarted: bool = False) -> PartitionLog:
        self.log = open_log(self, self.config, self.messages, machine_restarted)
        return self.log

    def append(self, count: int, size: int = 100) -> None:
        for _ in range(count):
            self.log.append(batch(size), NOW)

    def offsets(self) -> list[int]:
        found: list[int] = []
        while (offset := found[-1] + 1 if found else self.log.log_start_offset) < (
            self.log.log_end_offset
        ):
            found += [record.offset for record in iterate_records(self.log.read(offset, 500))]
        return found


def open_log(
    files: Files, config: LogConfig, messages: list[str], machine_restarted: bool
) -> PartitionLog:
    return PartitionLog.open(
        files,
        DIRECTORY,
        config,
        machine_restarted=machine_restarted,
        report=messages.append,
    )


@pytest.mark.parametrize("left", [1, 11, 60, HEADER_SIZE, HEADER_SIZE + 1, SIZE - 1])
def test_a_torn_tail_is_cut_with_a_message(left: int) -> None:
    disk = Disk()
    disk.append(3)
    disk.kill()
    cut(disk, FIRST, 2 * SIZE + left)
    disk.reopen()
    assert disk.offsets() == [0, 1]
    (message,) = disk.messages
    assert message.startswith(f"{FIRST}: cut {left} bytes at position {2 * SIZE}")
    assert "goes on at offset 2" in message
    disk.append(1)
    disk.kill()
    disk.reopen()
    assert disk.offsets() == [0, 1, 2]
    assert len(disk.messages) == 1


@pytest.mark.parametrize("byte", [0, 8, 11, 16, 18, 40, SIZE - 1])
def test_damage_before_sound_batches_is_refused_with_the_position(byte: int) -> None:
    disk = Disk()
    disk.append(4)
    disk.kill()
    damage(disk, FIRST, SIZE + byte, 0x80)
    before = content(disk, FIRST)
    with pytest.raises(CorruptLog, match=f"{FIRST}: damaged at position {SIZE} ") as error:
        disk.reopen()
    assert f"sound records follow in position {2 * SIZE}" in str(error.value)
    assert content(disk, FIRST) == before


def test_damage_in_the_last_batch_counts_as_torn() -> None:
    disk = Disk()
    disk.append(3)
    disk.kill()
    damage(disk, FIRST, 3 * SIZE - 1)
    disk.reopen()
    assert disk.offsets() == [0, 1]


def test_unsynced_damage_after_a_power_cut_is_cut() -> None:
    disk = Disk()
    disk.append(4)
    disk.kill()
    damage(disk, FIRST, SIZE + 30)
    disk.reopen(machine_restarted=True)
    assert disk.offsets() == [0]
    assert f"cut {3 * SIZE} bytes" in disk.messages[0]


def test_damage_to_synced_data_is_refused_also_after_a_power_cut() -> None:
    disk = Disk()
    disk.append(3)
    disk.log.flush(checkpoint=True)
    disk.append(1)
    disk.kill()
    # Without a matching index file the segment is read.
    disk.remove(f"{DIRECTORY}/{0:020d}.sparse")
    damage(disk, FIRST, SIZE + 30)
    with pytest.raises(CorruptLog, match="records up to 3 were on the disk whole"):
        disk.reopen(machine_restarted=True)


def test_damage_in_a_sealed_segment_is_refused() -> None:
    disk = Disk()
    disk.append(30)
    disk.kill()
    assert len(disk.log.segments) == 4
    damage(disk, FIRST, 2 * SIZE + 30)
    with pytest.raises(CorruptLog, match=f"{FIRST}: damaged at position {2 * SIZE}"):
        disk.reopen()


def test_the_last_batch_of_a_sealed_segment_counts_as_damaged_and_not_as_torn() -> None:
    disk = Disk()
    disk.append(30)
    disk.kill()
    cut(disk, FIRST, len(content(disk, FIRST)) - 1)
    with pytest.raises(CorruptLog, match="sound records follow in a later segment"):
        disk.reopen()


@pytest.mark.parametrize("machine_restarted", [False, True])
def test_a_missing_synced_segment_is_refused(machine_restarted: bool) -> None:
    disk = Disk()
    disk.append(30)
    disk.log.close()
    second = disk.list_directory(DIRECTORY)[2]
    disk.remove(f"{DIRECTORY}/{second}")
    with pytest.raises(CorruptLog, match="restore the missing part"):
        disk.reopen(machine_restarted=machine_restarted)


def test_missing_synced_records_at_the_end_are_refused() -> None:
    disk = Disk()
    disk.append(5)
    disk.log.close()
    cut(disk, FIRST, 3 * SIZE)
    with pytest.raises(CorruptLog, match="up to offset 5 were on the disk, and the log ends at 3"):
        disk.reopen(machine_restarted=True)


def test_sealed_segments_are_not_read_again_after_a_kill() -> None:
    disk = Disk()
    disk.append(60)
    disk.log.flush()
    disk.append(2)
    disk.kill()
    disk.reads.clear()
    disk.reopen()
    read = {path for path in disk.reads if path.endswith(".log")}
    assert read == {disk.log.segments.active.path}
    assert disk.offsets() == list(range(62))


def test_after_a_checkpoint_most_of_the_active_segment_is_not_read() -> None:
    disk = Disk(replace(SMALL, segment_bytes=1 << 20))
    disk.append(500)
    disk.log.flush(checkpoint=True)
    disk.append(2)
    disk.kill()
    disk.reads.clear()
    disk.reopen()
    assert disk.reads.count(FIRST) < 10
    assert disk.offsets() == list(range(502))


def test_flushes_make_checkpoints_by_themselves_every_few_megabytes() -> None:
    disk = Disk(replace(SMALL, segment_bytes=1 << 30, index_interval_bytes=4096))
    for _ in range(11):
        disk.append(1, size=1_000_000)
        disk.log.flush()
    snapshots = [n for n in disk.list_directory(DIRECTORY) if n.endswith(".snapshot")]
    assert snapshots == [f"{5:020d}.snapshot", f"{10:020d}.snapshot"]
    disk.kill()
    disk.reads.clear()
    disk.reopen()
    assert disk.reads.count(FIRST) < 10
    assert disk.log.log_end_offset == 11


def test_after_a_clean_close_no_batch_is_read() -> None:
    disk = Disk()
    disk.append(30)
    disk.log.close()
    disk.reads.clear()
    disk.reopen()
    assert not [path for path in disk.reads if path.endswith(".log")]
    assert disk.offsets() == list(range(30))


@pytest.mark.parametrize("damaged", ["snapshot", "index", "both"])
def test_damaged_index_and_snapshot_files_are_made_again(damaged: str) -> None:
    disk = Disk()
    disk.append(30)
    disk.log.append(batch(sequence=0), NOW)
    disk.log.close()
    for name in disk.list_directory(DIRECTORY):
        kinds = {
            "snapshot": (".snapshot",),
            "index": (".sparse",),
            "both": (".snapshot", ".sparse"),
        }
        if name.endswith(kinds[damaged]):
            damage(disk, f"{DIRECTORY}/{name}", 12)
    disk.reopen()
    assert disk.offsets() == list(range(31))
    again = disk.log.append(batch(sequence=0), NOW)
    assert (again.duplicate, again.base_offset) == (True, 30)
    disk.log.close()
    disk.reads.clear()
    disk.reopen()
    assert not [path for path in disk.reads if path.endswith(".log")]


def test_preallocated_zeros_are_cut_without_a_report() -> None:
    disk = Disk(replace(SMALL, preallocate_bytes=1_024))
    disk.append(2)
    disk.kill()
    assert len(content(disk, FIRST)) == 1_024
    disk.reopen()
    assert disk.offsets() == [0, 1]
    assert disk.messages == []
    assert len(content(disk, FIRST)) == 2 * SIZE


def test_files_of_unfinished_work_are_removed() -> None:
    disk = Disk()
    disk.append(2)
    disk.log.close()
    for name in ("x.snapshot.tmp", f"{0:020d}.log.cleaned"):
        disk.open(f"{DIRECTORY}/{name}", create=True).pwrite([b"half"], 0)
    disk.reopen()
    names = disk.list_directory(DIRECTORY)
    assert not [name for name in names if name.endswith((".tmp", ".cleaned"))]
    assert disk.offsets() == [0, 1]


def test_recovering_twice_gives_the_same() -> None:
    disk = Disk()
    disk.append(20)
    disk.kill()
    cut(disk, disk.log.segments.active.path, 3 * SIZE + 5)
    disk.reopen()
    once = {name: content(disk, f"{DIRECTORY}/{name}") for name in disk.list_directory(DIRECTORY)}
    disk.kill()
    disk.reopen()
    twice = {name: content(disk, f"{DIRECTORY}/{name}") for name in disk.list_directory(DIRECTORY)}
    assert once == twice
