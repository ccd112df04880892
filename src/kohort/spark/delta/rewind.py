"""Takes rows out of files of a Delta table: those from an offset on, or those of fenced partitions.

In: a snapshot of the log, or the files of a batch; the first offset to take out for each partition.
Out: the files to remove and the files to add in one commit. Must not know: fence numbers,
positions, Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.model.ids import TopicPartition
from kohort.spark.delta.log import DeltaFile, DeltaLog
from kohort.spark.ledgers.ledger import DataFile, LedgerError, WrittenFile
from kohort.spark.tables.layout import COMPACTED, PLACE
from kohort.spark.tables.parquet_output import ParquetOutput, write_batches
from kohort.spark.tables.partition_columns import folders_of


@dataclass(slots=True, kw_only=True)
class Swap:
    """Files that leave the table, and new files with the rows that stay."""

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
                swap.added.append(_replacing(log, file, touched, staying))
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


def without_partitions(
    directory: Path, files: Iterable[WrittenFile], leaving: Collection[TopicPartition]
) -> list[WrittenFile]:
    """The files of a batch without some partitions.

    A file with rows of other partitions, too, is written again without the rows of these.

    Raises:
        LedgerError: a file cannot be read or written.
    """
    kept = [file for file in files if file.partition not in leaving]
    if not leaving:
        return kept
    cuts = dict.fromkeys(leaving, 0)
    gone = {p.path for f in files if f.partition in leaving for p in f.files}
    again: dict[str, ParquetOutput] = {}
    for path in sorted(gone & {part.path for file in kept for part in file.files}):
        try:
            again[path] = _rewritten(directory, path, str(Path(path).parent), cuts)
        except (OSError, pa.ArrowException) as error:
            for new in again.values():
                (directory / new.path).unlink(missing_ok=True)
            raise LedgerError(
                f"{directory / path} has rows of partitions that have new owners, and cannot be "
                f"written again without them: {error}; nothing of this batch was committed; "
                "start the application again"
            ) from error

    def moved(part: DataFile) -> DataFile:
        new = again.get(part.path)
        return part if new is None else replace(part, path=new.path, seal=new.seal)

    return [replace(file, files=tuple(map(moved, file.files))) for file in kept]


def _rewritten(
    directory: Path, path: str, folder: str, cuts: Mapping[TopicPartition, int]
) -> ParquetOutput:
    """A new, finished file with the rows of a file that stay; there is at least one."""
    with pq.ParquetFile(directory / path, page_checksum_verification=True) as source:
        staying = (batch.filter(_keep(batch, cuts)) for batch in source.iter_batches())
        return write_batches(directory, folder, source.schema_arrow, staying)


def _replacing(
    log: DeltaLog, file: DeltaFile, cuts: Mapping[TopicPartition, int], staying: pa.Table
) -> DeltaFile:
    """A new file with the rows of a file that stay; ``staying`` has their places."""
    folder = COMPACTED + folders_of(log.partition_by, file.values)
    output = _rewritten(log.directory, file.path, folder, cuts)
    bounds = {name: pc.min_max(staying.column(name)).as_py() for name in PLACE}
    stats = {
        "numRecords": output.rows,
        "minValues": {name: bound["min"] for name, bound in bounds.items()},
        "maxValues": {name: bound["max"] for name, bound in bounds.items()},
    }
    return DeltaFile.at(log.directory, output.path, stats, file.values)
