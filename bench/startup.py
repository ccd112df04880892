"""Measures a start of the broker on a million committed offsets, from exec to the ready line.

kohort's storage writes two logs of ``__consumer_offsets`` with 50 partitions, as the broker writes
them. ``commits of 100`` holds each committed offset once, a hundred in a batch, as consumers of
many partitions commit. ``commits of 1`` has the same number of records for fewer keys, each in a
batch of its own, as before a compaction. Each log is started after a clean stop, after a kill, and
without checkpoints. Without checkpoints each batch is read twice: for its checksum and for replay.

    python -m bench.startup [--records N] [--goal SECONDS]

The exit status is 1 if a start took longer than the goal.
"""

from __future__ import annotations

import argparse
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.ending import end_with_children
from bench.results import emit

from kohort.broker.topics import Topics, log_defaults
from kohort.coordinator.partitions import partition_for
from kohort.coordinator.records import CommittedOffset, OffsetRecord
from kohort.host.settings import BrokerSettings
from kohort.model.ids import GroupId, TopicPartition
from kohort.model.instants import WallMillis
from kohort.storage.files import RealFiles
from kohort.storage.group_records import write_record
from kohort.storage.log_dir import LogDir
from kohort.storage.partition_log import PartitionLog
from kohort.storage.records import Record, build_batch

RECORDS = 1_000_000
GOAL_SECONDS = 10.0
PARTITIONS = 50
GROUPS = 500


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of batches and the number of keys."""

    name: str
    batch: int
    keys: int


SHAPES = (Shape("commits of 100", 100, RECORDS), Shape("commits of 1", 1, 50_000))


def main() -> int:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--goal", type=float, default=GOAL_SECONDS, metavar="SECONDS")
    options = parser.parse_args()
    slowest = 0.0
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="kohort-startup-") as directory:
            data = Path(directory) / "data"
            size = write(data, shape, options.records)
            row = {"shape": shape.name, "records": options.records}
            # The first start follows a clean stop of the writer, and ends with a kill.
            for before in ("clean stop", "kill"):
                measured = start(data, kill=before == "clean stop")
                slowest = max(slowest, measured["seconds"])
                emit("startup", row | {"log_mib": size, "after": before} | measured)
            forget_checkpoints(data)
            measured = start(data, kill=True)
            slowest = max(slowest, measured["seconds"])
            emit("startup", row | {"log_mib": size, "after": "no checkpoint"} | measured)
    return int(slowest > options.goal)


def write(data: Path, shape: Shape, records: int) -> int:
    """Write the log; return its size in MiB."""
    settings = BrokerSettings(offsets_topic_num_partitions=PARTITIONS)
    log_dir = LogDir.open(
        RealFiles(),
        str(data),
        node_id=1,
        new_cluster_id=lambda: "startup",
        defaults=log_defaults(settings),
        report=print,
    )
    topics = Topics(log_dir, settings)
    name = topics.offsets_topic().name
    now = int(time.time() * 1000)
    for partition, pairs in batches(shape, records, now):
        batch = build_batch([Record(key, value, now) for key, value in pairs])
        topics.log(TopicPartition(name, partition)).append(batch, now)
    written: list[PartitionLog] = list(log_dir.logs())
    size = sum(path.stat().st_size for path in data.rglob("*.log")) >> 20
    for log in written:
        log.flush()
    log_dir.close()
    return size


def batches(
    shape: Shape, records: int, now: int
) -> Iterator[tuple[int, list[tuple[bytes, bytes | None]]]]:
    per_group = max(1, min(shape.keys, records) // GROUPS)
    groups = [GroupId(f"payments-consumer-{n:04d}") for n in range(GROUPS)]
    homes = [partition_for(group, PARTITIONS) for group in groups]
    done, turn = 0, 0
    while done < records:
        number = turn % GROUPS
        first = (turn // GROUPS * shape.batch) % per_group
        value = CommittedOffset(
            offset=turn, leader_epoch=1, metadata="", commit_timestamp=WallMillis(now)
        )
        yield (
            homes[number],
            [
                write_record(
                    OffsetRecord(
                        group_id=groups[number],
                        partition=TopicPartition(
                            f"orders-{(first + n) // 100:03d}", (first + n) % 100
                        ),
                        value=value,
                    )
                )
                for n in range(min(shape.batch, records - done))
            ],
        )
        done += shape.batch
        turn += 1


def forget_checkpoints(data: Path) -> None:
    """Delete all checkpoints, so that a start checks each batch."""
    for path in data.rglob("*.snapshot"):
        path.unlink()


def start(data: Path, *, kill: bool) -> dict[str, float]:
    """Seconds from exec to the ready line, with the CPU time and the memory until the end."""
    command = [sys.executable, "-m", "kohort", "broker", "--port", "0", "--data-dir", str(data)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.perf_counter() - began
    if not line:
        raise RuntimeError("the broker did not start")
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    peak = next(int(row.split()[1]) // 1024 for row in status.splitlines() if "VmHWM" in row)
    process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
    process.communicate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 2), "cpu_seconds": round(cpu, 2), "peak_mib": peak}


if __name__ == "__main__":
    sys.exit(main())
