"""The content of a log after any history of appends, syncs and crashes.

On a disk that loses unsynced data, synced records are kept, and the log holds exactly the appended
records, in order and whole. After a kill all acknowledged records are kept. A repeated batch is
recognised after every crash. No crash makes a log refuse to open.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.stored_records import iterate_records

from kohort.storage.errors import StorageError
from kohort.storage.faulty_files import UnsyncedLossFiles
from kohort.storage.log_config import LogConfig
from kohort.storage.log_dir import LogDir, Topic
from kohort.storage.partition_log import PartitionLog
from kohort.storage.producer_state import BATCHES_REMEMBERED
from kohort.storage.record_batch import check_batch, iterate_batches, parse_header
from kohort.storage.records import Record, build_batch

NOW = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=150)


def batch_of(producer_id: int, sequence: int, values: list[bytes]) -> bytes:
    return build_batch(
        [Record(b"k", value, NOW) for value in values],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
    )


class World:
    """A data directory on a faulty disk, and the records that were appended to its one log."""

    def __init__(self, config: LogConfig, seed: int) -> None:
        self.files = UnsyncedLossFiles()
        self.config = config
        self.random = random.Random(seed)
        self.messages: list[str] = []
        self.open()
        self.log_dir.create_topic(Topic(name="t", topic_id=bytes(16), partitions=1, configs={}))
        self.bodies: list[tuple[int, bytes]] = []
        self.sequences = {1: 0, 2: 0}
        self.sent: dict[int, list[tuple[int, bytes]]] = {1: [], 2: []}

    def choose(self, n: int) -> int:
        return self.random.randint(0, n)

    def open(self) -> None:
        self.log_dir = LogDir.open(
            self.files,
            "/data",
            node_id=1,
            new_cluster_id=lambda: "c",
            defaults=self.config,
            report=self.messages.append,
        )

    @property
    def log(self) -> PartitionLog:
        return self.log_dir.log("t", 0)

    def append(self) -> None:
        producer_id = self.random.choice([1, 2])
        values = [
            self.random.randbytes(self.random.choice([5, 60, 400]))
            for _ in range(self.random.randint(1, 3))
        ]
        batch = batch_of(producer_id, self.sequences[producer_id], values)
        result = self.log.append(batch, NOW)
        assert not result.duplicate
        self.sequences[producer_id] += len(values)
        self.bodies.append((result.base_offset, check_batch(batch, 1 << 20)[1]))
        self.sent[producer_id].append((result.base_offset, batch))

    def flush(self) -> None:
        self.log.flush()
        assert self.log.durable_end_offset == self.log.log_end_offset

    def checkpoint(self) -> None:
        self.log.flush(checkpoint=True)

    def half_a_flush(self) -> None:
        """The sync succeeds, and the process dies before it learns that."""
        job = self.log.begin_flush(checkpoint=bool(self.choose(1)))
        if job is not None:
            job.run()
        self.kill()

    def kill(self) -> None:
        end = self.log.log_end_offset
        self.files.kill()
        self.open()
        assert self.log.log_end_offset == end
        self.check()

    def kill_within_a_write(self) -> None:
        before = self.log.log_end_offset
        self.append()
        self.files.kill(self.choose)
        self.open()
        assert self.log.log_end_offset >= before
        self.forget_lost()
        self.check()

    def power_cut(self) -> None:
        durable = self.log.durable_end_offset
        self.files.power_cut(self.choose)
        self.open()
        assert self.log.log_end_offset >= durable
        self.forget_lost()
        self.check()

    def restart(self) -> None:
        self.log_dir.close()
        self.files.reads.clear()
        self.open()
        assert not [path for path in self.files.reads if path.endswith(".log")]
        self.check()

    def forget_lost(self) -> None:
        end = self.log.log_end_offset
        self.bodies = [body for body in self.bodies if body[0] < end]
        for producer_id, sent in self.sent.items():
            lost = [batch for base_offset, batch in sent if base_offset >= end]
            if lost:
                self.sequences[producer_id] = parse_header(lost[0]).base_sequence
                self.sent[producer_id] = sent[: -len(lost)]

    def check(self) -> None:
        log = self.log
        assert stored_bodies(log) == self.bodies
        assert log.durable_end_offset == log.log_end_offset
        for sent in self.sent.values():
            for base_offset, batch in sent[-BATCHES_REMEMBERED:]:
                again = log.append(batch, NOW)
                assert (again.duplicate, again.base_offset) == (True, base_offset)


def stored_bodies(log: PartitionLog) -> list[tuple[int, bytes]]:
    found = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 2_000)
        for header, batch in iterate_batches(data):
            assert header.base_offset == offset
            found.append((offset, check_batch(batch, 1 << 20)[1]))
            offset = header.next_offset
    return found


def append_twice(world: World) -> None:
    world.append()
    world.append()


STEPS: dict[str, Callable[[World], None]] = {
    "append": World.append,
    "append twice": append_twice,
    "flush": World.flush,
    "checkpoint": World.checkpoint,
    "half a flush": World.half_a_flush,
    "kill": World.kill,
    "kill within a write": World.kill_within_a_write,
    "power cut": World.power_cut,
    "restart": World.restart,
}
histories = st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=25)


@pytest.mark.parametrize(
    "config",
    [SMALL, replace(SMALL, sync_before_answer=True, preallocate_bytes=512)],
    ids=["plain", "preallocated"],
)
@examples(300)
@given(history=histories, seed=st.integers(0, 10**6))
def test_any_history_of_appends_syncs_and_crashes_keeps_synced_records(
    config: LogConfig, history: list[str], seed: int
) -> None:
    world = World(config, seed)
    for step in history:
        STEPS[step](world)
    world.kill()


def test_a_power_cut_loses_unsynced_records_and_keeps_flushed_ones() -> None:
    # The control: the same disk loses unsynced records.
    lost = World(SMALL, 0)
    for _ in range(10):
        lost.append()
    lost.files.power_cut(lambda n: 0)
    lost.open()
    assert lost.log.log_end_offset == 0
    kept = World(SMALL, 0)
    for _ in range(10):
        kept.append()
    kept.flush()
    end = kept.log.log_end_offset
    kept.files.power_cut(lambda n: 0)
    kept.open()
    assert kept.log.log_end_offset == end
    assert len(list(iterate_records(kept.log.read(0, 1 << 20)))) > 0


def test_a_kill_in_the_middle_of_recovery_loses_nothing_more() -> None:
    world = World(SMALL, 3)
    for _ in range(12):
        world.append()
    end = world.log.log_end_offset
    world.files.kill()
    world.open()
    world.files.kill()
    world.open()
    assert world.log.log_end_offset == end
    world.check()


def test_a_log_that_opens_after_a_failed_sync_of_its_directory_keeps_flushed_records() -> None:
    files = UnsyncedLossFiles()

    def open_log() -> PartitionLog:
        return PartitionLog.open(files, "/data/t-0", SMALL, report=lambda _text: None)

    files.fail_sync = lambda _path: True
    with pytest.raises(StorageError, match="sync failed"):
        open_log()
    files.fail_sync = lambda _path: False
    log = open_log()
    log.append(batch_of(-1, -1, [b"acknowledged"]), NOW)
    log.flush()
    files.power_cut(lambda _highest: 0)
    assert open_log().log_end_offset == 1
