"""Compares the files of one partition with its records: each record has one unchanged row.

In: the manifest's rows of a partition, the settings of a cluster. Out: a verdict on the partition.
Must not know: other partitions, Spark, how the files were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kohort.client.config import ClientSettings
from kohort.client.errors import FetchFailed
from kohort.client.fetching.record_fetcher import ProblemKind, RecordFetcher
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.spark.ledgers.ledger import ManifestRow, NotedTopic, Seal
from kohort.spark.state.judging import PartitionComputation
from kohort.spark.tables.layout import (
    PLACE,
    RECORD_HASH,
    no_right,
    partition_of_file,
    record_hash,
)
from kohort.spark.tables.missing_rows import MissingRows
from kohort.spark.tables.seals import readable, seal_of
from kohort.spark.tables.verdict import PartitionVerdict

EXAMPLES: Final = 5
"""How many offsets a sentence about a fault names; the counts include all."""

_TAKE: Final = 10_000
_WAIT_S: Final = 0.2
_PATIENCE_S: Final = 60.0

Array = Any
"""A numpy array of 64-bit integers."""


class PartitionCheck:
    """Compares the files of one partition with its records."""

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        manifest: Sequence[ManifestRow],
        position: int,
    ) -> None:
        begin = manifest[0].begin if manifest else position
        self.verdict = PartitionVerdict(partition=partition, begin=begin, end=position)
        self._directory = directory
        self._manifest = manifest
        self.compacted = False
        """Whether the topic removes records in front of others with the same key."""
        self.unsorted: tuple[Mapping[str, int], Mapping[str, int]] | None = None
        """Files with rows and with dead letters; None if the manifest has the files."""
        self.whole: set[int] = set()
        """Begins of the pieces with unchanged files."""

    def compare_topic(self, noted: NotedTopic, topic_id: str | None, log_begin: int) -> None:
        """Check that the topic is the noted one; an added partition was read from its beginning."""
        verdict = self.verdict
        if topic_id and noted.topic_id not in (None, topic_id):
            verdict.troubles.append(
                f"the table has records of topic id {noted.topic_id}, the topic has the id "
                f"{topic_id}: it was deleted and made again"
            )
        if verdict.partition.partition >= noted.partitions and verdict.begin > log_begin:
            verdict.troubles.append(
                f"the partition was added after the table began, but the table begins at offset "
                f"{verdict.begin}: records from {log_begin} are missing"
            )

    def compare(
        self, settings: ClientSettings, log_begin: int, log_end: int, missing: MissingRows
    ) -> None:
        """Read the files and the topic, and note all differences."""
        verdict = self.verdict
        offsets, hashes, begin = self._read_rows(log_begin, log_end)
        order = np.argsort(offsets, kind="stable")
        offsets, hashes = offsets[order], hashes[order]
        messages = _messages(settings, verdict.partition, begin, min(verdict.end, log_end))
        expected, expected_hashes = _compare_presence(messages, offsets, missing)
        verdict.records = len(expected)
        again = offsets[1:][offsets[1:] == offsets[:-1]]
        verdict.duplicates = len(again)
        self._trouble(again, "rows that repeat a record")
        self._check_strangers(offsets, hashes, expected, expected_hashes, begin)
        self._note_missing(missing)

    def compare_state(
        self,
        settings: ClientSettings,
        log_begin: int,
        log_end: int,
        computation: PartitionComputation | None,
    ) -> None:
        """The same for the rows of a function with state: many or none for a record.

        Without ``computation`` the records stay undecided.
        """
        verdict = self.verdict
        offsets, hashes, begin = self._read_rows(log_begin, log_end)
        if verdict.unchecked and computation is not None:
            computation = None
            verdict.remarks.append("records that its state has seen are not in the topic any more")
        found = [(_EMPTY, _EMPTY)]
        for some in _messages(settings, verdict.partition, begin, min(verdict.end, log_end)):
            found.append(_places_of(some))
            if computation is not None:
                computation.add(some)
        expected = _join(places for places, _ in found)
        verdict.records = len(expected)
        self._check_strangers(offsets, hashes, expected, _join(h for _, h in found), begin)
        if computation is None:
            verdict.undecided = verdict.records
            return
        computation.compare(self._directory, verdict, *self._paths())

    def _read_rows(self, log_begin: int, log_end: int) -> tuple[Array, Array, int]:
        """Offsets and hashes of all committed rows, and the first offset with a record to compare.

        Notes the offsets in front of it, and the records behind the table.
        """
        verdict = self.verdict
        verdict.unread = max(0, log_end - verdict.end)
        self._check_tiles()
        offsets, hashes = self._read_files()
        begin = max(verdict.begin, log_begin)
        verdict.unchecked = begin - verdict.begin
        return offsets, hashes, begin

    def _paths(self) -> tuple[list[str], list[str]]:
        """The files with rows and those with dead letters that may have rows of the partition."""
        if self.unsorted is not None:
            rows, dead = (_candidates(files, self.verdict.partition) for files in self.unsorted)
            return rows, dead
        return (
            [file.path for row in self._manifest for file in row.data_files],
            [row.dead_path for row in self._manifest if row.dead_path],
        )

    def _check_tiles(self) -> None:
        """Check that each piece begins at the end of the previous one, up to the position."""
        verdict = self.verdict
        at = verdict.begin
        for row in self._manifest:
            if row.begin != at:
                verdict.troubles.append(
                    f"the manifest goes from offset {at} to {row.begin}: "
                    + ("nothing covers the gap" if row.begin > at else "pieces overlap")
                )
            at = row.end
        if at != verdict.end:
            verdict.troubles.append(
                f"the manifest ends at offset {at}, but the ledger's position is {verdict.end}"
            )

    def _read_files(self) -> tuple[Array, Array]:
        """Offsets and hashes of all committed rows."""
        if self.unsorted is not None:
            return self._read_unsorted(*self.unsorted)
        found: list[tuple[Array, Array]] = []
        verdict = self.verdict
        for row in self._manifest:
            before = len(verdict.troubles)
            files = [self._read(row, file.path, file.rows, file.seal) for file in row.data_files]
            dead = self._read(row, row.dead_path, row.dead_letters, row.dead_seal)
            if len(verdict.troubles) == before:
                self.whole.add(row.begin)
            found += [*files, dead]
            verdict.rows += sum(len(rows[0]) for rows in files)
            verdict.dead_letters += len(dead[0])
        return _join(offsets for offsets, _ in found), _join(hashes for _, hashes in found)

    def _read_unsorted(
        self, files: Mapping[str, int], dead_files: Mapping[str, int]
    ) -> tuple[Array, Array]:
        """The same, from files that may hold rows of several partitions."""
        verdict = self.verdict
        rows, dead = self._rows_among(files), self._rows_among(dead_files)
        verdict.rows, verdict.dead_letters = len(rows[0]), len(dead[0])
        if not verdict.troubles:
            self.whole = {piece.begin for piece in self._manifest}
        return _join([rows[0], dead[0]]), _join([rows[1], dead[1]])

    def _rows_among(self, files: Mapping[str, int]) -> tuple[Array, Array]:
        """Offsets and hashes of the partition's rows in files with these sizes; notes damage.

        A file in the folder of another partition, as pipelines write them, is not opened.
        """
        found = [(_EMPTY, _EMPTY)]
        troubles = self.verdict.troubles
        for path in _candidates(files, self.verdict.partition):
            try:
                size = (self._directory / path).stat().st_size
                found.append(_rows_in(self._directory / path, self.verdict.partition))
            except (OSError, pa.ArrowException) as error:
                self._note_unreadable(path, error)
                continue
            if size != files[path]:
                troubles.append(f"{path} has {size} bytes, the log of the table has {files[path]}")
        return _join(offsets for offsets, _ in found), _join(hashes for _, hashes in found)

    def _read(
        self, row: ManifestRow, path: str | None, count: int, seal: Seal | None
    ) -> tuple[Array, Array]:
        """Offsets and hashes of one file; notes differences from the manifest."""
        if path is None:
            return (_EMPTY, _EMPTY)
        troubles = self.verdict.troubles
        try:
            found = seal_of(self._directory / path)
            table = pq.read_table(
                self._directory / path, columns=[*PLACE, RECORD_HASH], partitioning=None
            )
        except (OSError, pa.ArrowException) as error:
            self._note_unreadable(path, error)
            return _EMPTY, _EMPTY
        if seal is not None and found != seal:
            troubles.append(
                f"{path} has changed since it was written: it has {found.size} bytes with the "
                f"CRC-32C {found.crc:#010x}, the manifest has {seal.size} with {seal.crc:#010x}"
            )
        offsets = table.column("offset").to_numpy().astype(np.int64)
        if len(offsets) != count:
            troubles.append(f"{path} holds {len(offsets)} rows, the manifest has {count}")
        for name, expected in zip(PLACE, row.partition, strict=False):
            if set(table.column(name).unique().to_pylist()) - {expected}:
                troubles.append(f"{path} holds rows of another partition than {row.partition}")
        if len(offsets) and not row.begin <= offsets.min() <= offsets.max() < row.end:
            troubles.append(
                f"{path} holds offsets {offsets.min()} to {offsets.max()}, "
                f"the manifest has {row.begin} to {row.end - 1}"
            )
        return offsets, table.column(RECORD_HASH).to_numpy().astype(np.int64)

    def _note_unreadable(self, path: str, error: Exception) -> None:
        if isinstance(error, PermissionError):
            raise no_right(self._directory / path, "a file") from error
        self.verdict.troubles.append(f"{path} cannot be read: {error}")

    def _check_strangers(
        self, offsets: Array, hashes: Array, expected: Array, expected_hashes: Array, begin: int
    ) -> None:
        """Find rows without a record, and rows with another hash than their record."""
        checked = offsets >= begin
        offsets, hashes = offsets[checked], hashes[checked]
        if len(expected):
            at = np.minimum(np.searchsorted(expected, offsets), len(expected) - 1)
            known = expected[at] == offsets
            other = offsets[known & (expected_hashes[at] != hashes)]
        else:
            known, other = np.zeros(len(offsets), bool), _EMPTY
        unknown = offsets[~known]
        if self.compacted and len(unknown):
            self.verdict.unchecked += len(unknown)
            self.verdict.remarks.append(
                f"{len(unknown)} rows are not judged: the topic is compacted, and has no record at "
                "their offsets any more"
            )
            unknown = _EMPTY
        self.verdict.strangers = len(unknown) + len(other)
        self._trouble(unknown, "rows of offsets at which the topic has no record")
        self._trouble(other, "rows with another hash than their record")

    def _note_missing(self, missing: MissingRows) -> None:
        verdict = self.verdict
        verdict.filtered = missing.filtered
        verdict.undecided = sum(missing.undecided.values())
        verdict.remarks += [
            f"it is undecided whether {count} records without a row were filtered or lost: {why}"
            for why, count in missing.undecided.items()
        ]
        verdict.holes = len(missing.lost)
        self._trouble(np.sort(np.array(missing.lost, np.int64)), "records without a row")

    def _trouble(self, offsets: Array, what: str) -> None:
        if len(offsets):
            examples = ", ".join(map(str, offsets[:EXAMPLES]))
            more = ", ..." if len(offsets) > EXAMPLES else ""
            self.verdict.troubles.append(f"{len(offsets)} {what}: offsets {examples}{more}")


def gone_records(
    directory: Path,
    partition: TopicPartition,
    files: Iterable[str],
    settings: ClientSettings,
    *,
    begin: int,
    log_end: int,
) -> list[int]:
    """The offsets of rows, from ``begin`` on, that have no record in the topic any more.

    Args:
        directory: the directory of a table with at most one row for each record.
        partition: the partition.
        files: the files of the table with rows and with dead letters.
        settings: the settings of the cluster.
        begin: the first offset to look at.
        log_end: the end of the partition's log.

    Raises:
        ConfigError: this user may not read a file.
        LedgerError: a file is damaged.
        FetchFailed: no record arrived for one minute, or the broker refuses.
    """
    found = [_EMPTY]
    for path in _candidates(files, partition):
        with readable(directory / path):
            found.append(_rows_in(directory / path, partition)[0])
    rows = np.unique(_join(found))
    rows = rows[rows >= begin]
    end = min(int(rows[-1]) + 1, log_end) if len(rows) else begin
    there = [message.offset() for m in _messages(settings, partition, begin, end) for message in m]
    gone: list[int] = np.setdiff1d(rows, np.array(there, np.int64)).tolist()
    return gone


_EMPTY: Final = np.array([], np.int64)


def _join(arrays: Iterable[Array]) -> Array:
    return np.concatenate([_EMPTY, *arrays])


def _compare_presence(
    messages: Iterable[list[Any]], have: Array, missing: MissingRows
) -> tuple[Array, Array]:
    """Offsets and hashes of the records; records that are not in ``have`` go to ``missing``."""
    offsets, hashes = [_EMPTY], [_EMPTY]
    for some in messages:
        places, found = _places_of(some)
        offsets.append(places)
        hashes.append(found)
        for index in _absent(offsets[-1], have):
            missing.add(some[index])
    missing.settle()
    return np.concatenate(offsets), np.concatenate(hashes)


def _places_of(messages: list[Any]) -> tuple[Array, Array]:
    """Offsets and hashes of records."""
    offsets = np.array([message.offset() for message in messages], np.int64)
    hashes = [record_hash(message.key(), message.value()) for message in messages]
    return offsets, np.array(hashes, np.int64)


def _absent(offsets: Array, have: Array) -> list[int]:
    """Indexes of the offsets that are not in the sorted array ``have``."""
    at: Array = np.searchsorted(have, offsets)
    known: Array = at < len(have)
    known[known] = have[at[known]] == offsets[known]
    absent: list[int] = np.flatnonzero(~known).tolist()
    return absent


def _messages(
    settings: ClientSettings, partition: TopicPartition, begin: int, end: int
) -> Iterator[list[Any]]:
    """The records of the topic in a range.

    librdkafka reads them, not ``kohort.spark.source.reading``: an error there would hide itself.

    Raises:
        FetchFailed: no record arrived for one minute, or the broker refuses.
    """
    if begin >= end:
        return
    with closing(RecordFetcher(settings, tell_ends=True)) as fetcher:
        fetcher.add({partition: Position(begin)})
        at, heard = begin, time.monotonic()
        while at < end:
            messages: list[Any] = fetcher.take(_TAKE, _WAIT_S)
            if messages:
                at = messages[-1].offset() + 1
                yield [message for message in messages if message.offset() < end]
                heard = time.monotonic()  # after the yield: the caller may have started Spark
            for problem in fetcher.problems():
                if problem.kind is ProblemKind.END:
                    # The last offsets of a range may hold no record.
                    at = max(at, problem.offset)
                elif problem.kind is not ProblemKind.PASSING:
                    raise problem.as_error()
            if time.monotonic() - heard > _PATIENCE_S:
                raise FetchFailed(
                    f"expected records of {partition} from offset {at} up to {end}, none arrived "
                    f"within {_PATIENCE_S:g} s; check that the leader of {partition} is reachable"
                )


def _candidates(files: Iterable[str], partition: TopicPartition) -> list[str]:
    """The files that may have rows of a partition, by their paths."""
    return sorted(path for path in files if partition_of_file(path) in (partition, None))


def _rows_in(path: Path, partition: TopicPartition) -> tuple[Array, Array]:
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
