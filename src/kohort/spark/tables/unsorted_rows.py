"""Reads the rows of a partition from files that do not belong to one partition each.

In: the committed files of a Delta table. Out: offsets and hashes, sentences about damaged files.
Must not know: topics on brokers, verdicts, the log of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.model.ids import TopicPartition
from kohort.spark.tables.layout import PLACE, RECORD_HASH, partition_of_file

Array = Any
"""A numpy array of 64-bit integers."""

_EMPTY: Final = np.array([], np.int64)


@dataclass(slots=True, kw_only=True)
class FoundRows:
    """Offsets and hashes of the rows of one partition, and the faults of its files."""

    offsets: Array = field(default_factory=lambda: _EMPTY)
    hashes: Array = field(default_factory=lambda: _EMPTY)
    troubles: list[str] = field(default_factory=list)


def read_rows(directory: Path, files: Mapping[str, int], partition: TopicPartition) -> FoundRows:
    """The rows of one partition.

    Args:
        directory: the directory of the table.
        files: the files with their sizes. A file in the folder of another partition, as pipelines
            write them, is not opened.
        partition: the partition.
    """
    found = FoundRows()
    offsets, hashes = [_EMPTY], [_EMPTY]
    for path in candidates(files, partition):
        size = files[path]
        try:
            actual = (directory / path).stat().st_size
            rows = _read(directory / path, partition)
        except (OSError, pa.ArrowException) as error:
            found.troubles.append(f"{path} cannot be read: {error}")
            continue
        if actual != size:
            found.troubles.append(f"{path} has {actual} bytes, the log of the table has {size}")
        offsets.append(rows[0])
        hashes.append(rows[1])
    found.offsets, found.hashes = np.concatenate(offsets), np.concatenate(hashes)
    return found


def candidates(files: Iterable[str], partition: TopicPartition) -> list[str]:
    """The files that may have rows of a partition, by their paths."""
    return sorted(path for path in files if partition_of_file(path) in (partition, None))


def _read(path: Path, partition: TopicPartition) -> tuple[Array, Array]:
    """Offsets and hashes of the rows of one partition in one file."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        groups = [
            number
            for number in range(file.num_row_groups)
            if _group_may_hold(file.metadata.row_group(number), partition.partition)
        ]
        table = file.read_row_groups(groups, columns=[*PLACE, RECORD_HASH])
    # deltalake rewrites texts as views, for which Arrow has neither filters nor equality.
    topics = table.column("topic").cast(pa.string())
    mine = pc.and_(
        pc.equal(topics, partition.topic),
        pc.equal(table.column("partition"), partition.partition),
    ).to_numpy()
    offsets, hashes = (table.column(name).to_numpy()[mine] for name in ("offset", RECORD_HASH))
    return offsets.astype(np.int64), hashes.astype(np.int64)


def _group_may_hold(group: pq.RowGroupMetaData, number: int) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == "partition" and column.is_stats_set:
            return bool(column.statistics.min <= number <= column.statistics.max)
    return True
