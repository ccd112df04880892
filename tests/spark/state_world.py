"""A world of fake applications with a stage: real rows, state files, copies and ledgers.

The records of a partition follow from their offsets, so each test can compute its rows again. The
plain computations here go row by row through the whole partition, without a cut.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.spark.fake_engine import Application, FakeTopics, World, survives

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import Ledger, WrittenFile
from kohort.spark.source.planning import Piece
from kohort.spark.state.copies import opened_copy
from kohort.spark.state.files import StateFolder
from kohort.spark.state.following import StateFollower
from kohort.spark.state.pieces import StateWork, write_with_state
from kohort.spark.state.stage import Stage, checked_schema
from kohort.spark.state.windows import Windows, count, greatest, total
from kohort.spark.tables.piece_files import written_file

GIVEN = pa.schema(
    [
        pa.field("offset", pa.int64()),
        ("client", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("size", pa.int64()),
    ]
)
MINUTE = 60_000_000
GRACE = 4
GAP = 7
HOUR = 15

SESSIONS = Windows(
    time="at",
    keys=["client"],
    gap=timedelta(minutes=GAP),
    grace=timedelta(minutes=GRACE),
    values={"requests": count(), "bytes": total("size"), "largest": greatest("size")},
)
COUNTS = Windows(
    time="at",
    keys=["client"],
    size=timedelta(minutes=HOUR),
    grace=timedelta(minutes=GRACE),
    values={"requests": count(), "bytes": total("size"), "largest": greatest("size")},
)

Row = tuple[Any, ...]


def record(partition: TopicPartition, offset: int) -> tuple[str, int | None, int]:
    """Client, event time in microseconds, and size; some times are early, late or missing."""
    mixed = (offset * 7_919 + partition.partition * 104_729) % 1_009
    at = None if mixed % 97 == 5 else (offset + mixed % 17 - 8) * MINUTE
    return f"client-{mixed % 3}", at, mixed


def batch_of(partition: TopicPartition, offsets: list[int]) -> pa.RecordBatch:
    """The rows that Spark gives to the function of a task."""
    records = [record(partition, offset) for offset in offsets]
    return pa.RecordBatch.from_pydict(
        {
            "topic": pa.array([partition.topic] * len(offsets), pa.string()),
            "partition": pa.array([partition.partition] * len(offsets), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "record_hash": pa.array(offsets, pa.int64()),
            "client": pa.array([client for client, _, _ in records], pa.string()),
            "at": pa.array([at for _, at, _ in records], pa.timestamp("us", "UTC")),
            "size": pa.array([size for _, _, size in records], pa.int64()),
            "__kohort_key": pa.array([b"k%d" % n for n in offsets], pa.binary()),
            "__kohort_value": pa.array([b"v%d" % n for n in offsets], pa.binary()),
        }
    )


@dataclass(slots=True)
class Plain:
    """A window of a plain computation."""

    client: str
    begin: int
    end: int
    sizes: list[int]

    def row(self, partition: TopicPartition, offset: int) -> Row:
        sizes = (len(self.sizes), sum(self.sizes), max(self.sizes))
        return (*partition, offset, self.client, self.begin, self.end, *sizes)


def computed(
    partition: TopicPartition, end: int, *, sessions: bool
) -> tuple[list[Row], list[tuple[int, str]]]:
    """The rows and the late records of a partition, row by row, with lists and loops alone."""
    rows: list[Row] = []
    late: list[tuple[int, str]] = []
    windows: list[Plain] = []
    clock: int | None = None
    for offset in filter(survives, range(end)):
        client, at, size = record(partition, offset)
        if at is None:
            late.append((offset, "the event time is NULL"))
            continue
        begin = at if sessions else at // (HOUR * MINUTE) * HOUR * MINUTE
        new = Plain(client, begin, begin + (GAP if sessions else HOUR) * MINUTE, [size])
        mine = [w for w in windows if w.client == client and w.begin < new.end and begin < w.end]
        if not mine and clock is not None and new.end + GRACE * MINUTE <= clock:
            late.append((offset, "late: its window is closed"))
            continue
        for window in mine:
            windows.remove(window)
            new.begin, new.end = min(new.begin, window.begin), max(new.end, window.end)
            new.sizes += window.sizes
        windows.append(new)
        clock = at if clock is None else max(clock, at)
        for window in [w for w in windows if w.end + GRACE * MINUTE <= clock]:
            windows.remove(window)
            rows.append(window.row(partition, offset))
    return rows, late


class StateWorld(World):
    """The state outside of processes, with rows and state files on a disk."""

    def __init__(
        self,
        directory: Path,
        topics: FakeTopics,
        stage: Stage = SESSIONS,
        make_ledger: Callable[[Path], Ledger] | None = None,
    ) -> None:
        if make_ledger is None:
            super().__init__(directory, topics)
        else:
            super().__init__(directory, topics, make_ledger)
        self.stage = stage
        self.schema = checked_schema(stage, GIVEN)

    def rows(self) -> list[Row]:
        """All rows in committed files."""
        return self._read(dead=False, names=["offset", *self.schema.names])

    def dead(self) -> list[Row]:
        """All dead letters in committed files."""
        return self._read(dead=True, names=["offset", "dead_letter", "key", "value"])

    def _read(self, *, dead: bool, names: list[str]) -> list[Row]:
        ledger = self.make_ledger(self.directory)
        paths = ledger.files(dead=dead)
        ledger.close()
        rows: list[Row] = []
        for path in paths:
            table = pq.read_table(self.directory / path, columns=["topic", "partition", *names])
            for name in ("window_begin", "window_end"):
                if name in names:
                    at = table.schema.get_field_index(name)
                    table = table.set_column(at, name, table.column(name).cast(pa.int64()))
            rows += zip(*(column.to_pylist() for column in table.columns), strict=True)
        return sorted(rows)

    def expected(self) -> list[Any]:
        """The rows of the plain computation."""
        found = [
            row
            for partition, end in self.topics.end.items()
            for row in computed(partition, end, sessions=self.stage is SESSIONS)[0]
        ]
        return sorted(found)

    def expected_dead(self) -> list[Row]:
        """The dead letters of the plain computation."""
        return sorted(
            (*partition, offset, reason, b"k%d" % offset, b"v%d" % offset)
            for partition, end in self.topics.end.items()
            for offset, reason in computed(partition, end, sessions=self.stage is SESSIONS)[1]
        )


class InlineCopies(StateFollower):
    """Restores copies within the calls of the driver; an owned one only in the second call."""

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._folder = world.directory / "_kohort" / "copies" / name
        self._ledger = world.open_ledger()
        self._restored: dict[TopicPartition, int] = {}
        self._warm: set[TopicPartition] = set()
        self.restores: list[tuple[TopicPartition, int]] = []
        """The partitions that were restored after they came, with the entries that were read."""

    def follow(
        self, owned: Mapping[TopicPartition, int], others: Collection[TopicPartition]
    ) -> None:
        for partition in others:
            self._advance(partition)
        self._warm = set(others)
        for partition, epoch in owned.items():
            if self._restored.get(partition) != epoch:
                self._restored[partition] = epoch
                self.restores.append((partition, self._advance(partition)))

    def _advance(self, partition: TopicPartition) -> int:
        entries = [0]
        with opened_copy(self._folder, partition) as copy:
            folder = StateFolder(self._world.directory, partition)
            head = self._ledger.states().get(partition)
            copy.advance(folder, head, lambda done, total: entries.append(done))
        return entries[-1]

    def restored(self) -> frozenset[TopicPartition]:
        return frozenset(self._restored)

    def warm(self) -> frozenset[TopicPartition]:
        return frozenset(self._warm)

    def close(self) -> None:
        pass


class StatefulApplication(Application):
    """One start of an application; its tasks run the stage of the world."""

    def _write(self, pieces: list[Piece]) -> Iterator[WrittenFile]:
        world = self.world
        assert isinstance(world, StateWorld)
        name = self.name.split("-", maxsplit=1)[0]
        work = StateWork(
            directory=str(world.directory),
            copies=str(world.directory / "_kohort" / "copies" / name),
            heads=self.sink.states(),
            name="stage",
            stage=world.stage,
            columns=tuple(GIVEN.names),
            schema=world.schema,
        )
        batches = [
            batch_of(piece.partition, offsets)
            for piece in pieces
            if (offsets := [n for n in range(piece.begin, piece.end) if survives(n)])
        ]
        for report in write_with_state(work, "mark", iter(batches)):
            yield from map(written_file, report.column("file").to_pylist())
