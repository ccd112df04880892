"""A world of fake applications that write a real Delta table; a reader of its log.

``rows_of`` reads a table by Delta's specification, without ``deltalake``: the newest checkpoint,
the commits after it, then the Parquet files.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from tests.spark.fake_engine import Application, Checkpoint, FakeTopics, World, survives

from kohort.model.ids import TopicPartition
from kohort.spark.delta.ledger import DeltaLedger
from kohort.spark.ledgers.ledger import WrittenFile
from kohort.spark.source.planning import Piece
from kohort.spark.tables.piece_files import PLACE_SCHEMA, write_files, written_file


def open_delta(directory: Path) -> DeltaLedger:
    """The ledger of the group, with the settings that applications use."""
    return DeltaLedger(directory, "g")


class DeltaWorld(World):
    """The state outside of processes, with a Delta table on a real disk."""

    def __init__(self, directory: Path, topics: FakeTopics) -> None:
        super().__init__(directory, topics, open_delta)

    def write(self, rows: list[tuple[TopicPartition, int]]) -> str:
        path = f"data/{uuid.uuid4().hex}.parquet"
        (self.directory / "data").mkdir(exist_ok=True)
        columns = {
            "topic": pa.array([p.topic for p, _ in rows], pa.string()),
            "partition": pa.array([p.partition for p, _ in rows], pa.int32()),
            "offset": pa.array([offset for _, offset in rows], pa.int64()),
            "record_hash": pa.array([0] * len(rows), pa.int64()),
        }
        pq.write_table(pa.table(columns), self.directory / path)
        return path

    def table(self) -> list[tuple[TopicPartition, int]]:
        return rows_of(self.directory)


class WritingApplication(Application):
    """Writes its files as the tasks of a pipeline do: small pieces share a file."""

    def _write(self, pieces: list[Piece]) -> Iterator[WrittenFile]:
        batches = (
            self._rows(piece, [n for n in range(piece.begin, piece.end) if survives(n)])
            for piece in pieces
        )
        for report in write_files(str(self.world.directory), "mark", batches, share=True):
            yield from map(written_file, report.column(0).to_pylist())

    def _rows(self, piece: Piece, offsets: list[int]) -> pa.RecordBatch:
        columns = {
            "topic": [piece.partition.topic] * len(offsets),
            "partition": [piece.partition.partition] * len(offsets),
            "offset": offsets,
            "record_hash": offsets,
        }
        return pa.RecordBatch.from_pydict(columns, PLACE_SCHEMA)


def start(
    world: DeltaWorld,
    name: str = "a",
    checkpoint: Checkpoint | None = None,
    make: type[Application] = Application,
    **more: Any,
) -> tuple[Application, Iterator[str]]:
    application = make(world, name, checkpoint or Checkpoint(), **more)
    return application, application.run()


@dataclass
class Replayed:
    """The state of a Delta table after all commits."""

    files: dict[str, Any] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)

    def apply(self, action: dict[str, Any]) -> None:
        if action.get("add"):
            assert action["add"]["path"] not in self.files, "one file was added twice"
            self.files[action["add"]["path"]] = action["add"]
        if action.get("remove"):
            self.files.pop(action["remove"]["path"], None)
        if action.get("txn"):
            self.numbers[action["txn"]["appId"]] = action["txn"]["version"]


def replay(directory: Path) -> Replayed:
    """Read the log of a table."""
    log = directory / "_delta_log"
    state = Replayed()
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    begin = -1
    if checkpoints:
        begin = int(checkpoints[-1].name.split(".")[0])
        for action in pq.read_table(checkpoints[-1]).select(["add", "txn"]).to_pylist():
            state.apply(action)
    for path in sorted(log.glob("*[0-9].json")):
        version = int(path.stem)
        state.versions.append(version)
        if version > begin:
            for line in path.read_text().splitlines():
                state.apply(json.loads(line))
    return state


def rows_of(directory: Path) -> list[tuple[TopicPartition, int]]:
    """Partition and offset of each row, sorted; equal rows stay."""
    rows: list[tuple[TopicPartition, int]] = []
    for path in replay(directory).files:
        table = pq.read_table(directory / unquote(path), columns=["topic", "partition", "offset"])
        rows += [
            (TopicPartition(r["topic"], r["partition"]), r["offset"]) for r in table.to_pylist()
        ]
    return sorted(rows)
