"""Makes tables without Spark, with the reader, the writer and the ledger of Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from tests.spark.conftest import Feed

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import Committed, ManifestRow, NotedQuery, NotedTopic, WrittenFile
from kohort.spark.source.offsets import OwnedRange
from kohort.spark.source.planning import pack, pieces_of
from kohort.spark.source.reading import read_pieces
from kohort.spark.tables.layout import record_hash
from kohort.spark.tables.piece_files import write_files, written_file
from kohort.spark.tables.table import open_ledger


def as_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that ``SELECT value FROM records`` makes of records."""
    keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
    return pa.RecordBatch.from_pydict(
        {
            "topic": batch.column("topic"),
            "partition": batch.column("partition"),
            "offset": batch.column("offset"),
            "record_hash": pa.array(map(record_hash, keys, values), pa.int64()),
            "value": batch.column("value"),
        }
    )


def manifest_of(directory: Path) -> list[ManifestRow]:
    """All committed pieces of a table, by partition and offset."""
    with closing(open_ledger(directory)) as ledger:
        return ledger.manifest()


def land(
    feed: Feed,
    directory: Path,
    ranges: dict[int, tuple[int, int]],
    *,
    tasks: int = 2,
    query: NotedQuery | None = None,
    drop: Callable[[int], bool] = lambda offset: False,
    kind: str = "parquet",
) -> Committed:
    """One micro-batch: reads the ranges, writes the files, commits.

    ``drop`` chooses offsets without a row; ``query`` is noted as the query of the rows.
    """
    ledger = open_ledger(directory, "g", kind)
    ledger.note_topic(feed.topic, NotedTopic(topic_id=None, partitions=feed.partitions))
    name = None if query is None else ledger.note_query(query)
    partitions = {TopicPartition(feed.topic, n): r for n, r in ranges.items()}
    epochs = {p: a.epoch for p, a in ledger.acquire(partitions, 1, "m").items()}
    ledger.establish({p: begin for p, (begin, _) in partitions.items()}, epochs)
    owned = {
        p: OwnedRange(begin=begin, end=end, epoch=epochs[p])
        for p, (begin, end) in partitions.items()
    }
    packed = pack(owned, tasks, smallest_cut=1)
    ledger.intend("app", pieces_of(packed))
    files: list[WrittenFile] = []
    for pieces in packed:
        batches = (
            rows.filter(
                pa.array([not drop(offset) for offset in rows.column("offset").to_pylist()])
            )
            for rows in map(as_rows, read_pieces(feed.settings, pieces))
        )
        for report in write_files(str(directory), "land", batches, share=kind == "delta"):
            files += [written_file(row["file"]) for row in report.to_pylist()]
    done = ledger.commit("app", files, name)
    ledger.close()
    return done
