"""Takes the rows from an offset on out of the files of a Delta table.

In: a snapshot of the log, the first offset to take out for each partition. Out: the files to remove
and the files to add in one commit. Must not know: fences, positions, Spark.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.model.ids import TopicPartition
from kohort.spark.delta.log import DeltaFile, DeltaLog
from kohort.spark.layout import COMPACTED, PLACE
from kohort.spark.ledger import LedgerError
from kohort.spark.partition_columns import folders_of
from kohort.spark.piece_files import ParquetOutput


@dataclass(slots=True, kw_only=True)
class Swap:
    """Files that leave the table, and files with those of their rows that stay."""

    removed: list[DeltaFile] = field(default_factory=list)
    added: list[DeltaFile] = field(default_factory=list)


def without_rows(log: DeltaLog, cuts: Mapping[TopicPartition, int]) -> Swap:
    """Write the rows that stay; nothing is committed.

    Args:
        log: the snapshot.
        cuts: for each partition the first offset that leaves the table.

    Raises:
        LedgerError: a file cannot be read or written.
    """
    swap = Swap()
    for file in log.added_files():
        touched = {p: cut for p, cut in cuts.items() if _may_hold(file, p, cut)}
        if not touched:
            continue
        try:
            rows = pq.read_table(log.directory / file.path, columns=[*PLACE], partitioning=None)
            staying = rows.filter(_keep(rows, touched))
            if staying.num_rows == rows.num_rows:
                continue
            if staying.num_rows:
                swap.added.append(_rewritten(log, file, touched, staying))
        except (OSError, pa.ArrowException) as error:
            raise LedgerError(
                f"{log.directory} was not rewound: {file.path}: {error}; "
                "`kohort table verify` names damaged files"
            ) from error
        swap.removed.append(file)
    return swap


def _may_hold(file: DeltaFile, partition: TopicPartition, cut: int) -> bool:
    """Whether the file may hold rows that leave, by its statistics."""
    least, most = file.stats.get("minValues", {}), file.stats.get("maxValues", {})
    for name, value in (("topic", partition.topic), ("partition", partition.partition)):
        if name in least and name in most and not least[name] <= value <= most[name]:
            return False
    return bool(most.get("offset", cut) >= cut)


def _keep(rows: pa.Table | pa.RecordBatch, cuts: Mapping[TopicPartition, int]) -> pa.Array:
    """Whether each row stays."""
    leaving = pa.repeat(pa.scalar(False), rows.num_rows)
    for partition, cut in cuts.items():
        here = pc.and_(
            pc.equal(rows.column("topic"), partition.topic),
            pc.equal(rows.column("partition"), partition.partition),
        )
        leaving = pc.or_(leaving, pc.and_(here, pc.greater_equal(rows.column("offset"), cut)))
    return pc.invert(leaving)


def _rewritten(
    log: DeltaLog, file: DeltaFile, cuts: Mapping[TopicPartition, int], staying: pa.Table
) -> DeltaFile:
    """A new file with the rows of a file that stay; ``staying`` has their places."""
    output: ParquetOutput | None = None
    folder = COMPACTED + folders_of(log.partition_by, file.values)
    try:
        with pq.ParquetFile(log.directory / file.path, page_checksum_verification=True) as source:
            output = ParquetOutput(
                log.directory, folder, f"{uuid.uuid4().hex}.parquet", source.schema_arrow, True
            )
            for batch in source.iter_batches():
                output.add(batch.filter(_keep(batch, cuts)))
        path = output.finish()
    finally:
        if output is not None:
            output.abandon()
    assert path is not None
    status = (log.directory / path).stat()
    bounds = {name: pc.min_max(staying.column(name)).as_py() for name in PLACE}
    return DeltaFile(
        path=path,
        size=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        values=file.values,
        stats={
            "numRecords": output.rows,
            "minValues": {name: bound["min"] for name, bound in bounds.items()},
            "maxValues": {name: bound["max"] for name, bound in bounds.items()},
        },
    )
