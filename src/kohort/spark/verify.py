"""The table against its topic: is every record there, once, and unharmed.

What lives here: ``verify``. In go a table's directory and a cluster's settings, out comes a
verdict for each partition. The files themselves are opened and every row is compared with the
record it claims to come from: place and hash. It must not know Spark or how the files were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kohort.client.admin import EARLIEST, LATEST, Admin
from kohort.client.config import ClientSettings
from kohort.client.errors import FetchFailed
from kohort.client.fetching import ProblemKind, RecordFetcher
from kohort.consumer.positions import Position
from kohort.model.ids import TopicPartition
from kohort.spark.layout import PLACE, RECORD_HASH, record_hash
from kohort.spark.ledger import ManifestRow
from kohort.spark.sqlite_ledger import SqliteLedger
from kohort.spark.table import Orphan, orphans_of

EXAMPLES: Final = 5
"""So many offsets of each kind of trouble are named; all are counted."""

_TAKE: Final = 10_000
_WAIT_S: Final = 0.2
_PATIENCE_S: Final = 60.0

Array = Any
"""A numpy array of 64-bit integers."""


@dataclass(slots=True, kw_only=True)
class PartitionVerdict:
    """One partition, from its first committed offset to its position.

    Attributes:
        begin, end: the offsets that the table claims to hold.
        records: that the topic has there.
        rows: in committed files.
        dead_letters: in committed files of malformed records.
        filtered: records without a row in intact files, where the SQL filters.
        holes: records that the table lost.
        duplicates: rows that repeat a record.
        strangers: rows that no record of the topic belongs to, or of another hash.
        unchecked: offsets that the topic has deleted since.
        unread: records behind ``end``: not consumed yet, no fault.
        troubles: sentences about what is wrong, with examples.
    """

    partition: TopicPartition
    begin: int
    end: int
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    filtered: int = 0
    holes: int = 0
    duplicates: int = 0
    strangers: int = 0
    unchecked: int = 0
    unread: int = 0
    troubles: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole table. ``ok`` if nothing is missing, doubled, strange or left lying about."""

    partitions: Sequence[PartitionVerdict]
    orphans: Sequence[Orphan]

    @property
    def ok(self) -> bool:
        """Whether the table holds what it claims, and nothing else."""
        return not self.orphans and not any(p.troubles for p in self.partitions)

    def total(self, name: str) -> int:
        """The sum of one of ``PartitionVerdict``'s numbers."""
        return sum(getattr(partition, name) for partition in self.partitions)


def verify(directory: Path, settings: ClientSettings) -> Verdict:
    """Compare a table with its topics.

    Raises:
        ConfigError: there is no table in the directory.
        ClientError: the cluster cannot be reached, or does not have the topics.
    """
    ledger = SqliteLedger.of_table(directory)
    try:
        positions = ledger.all_positions()
        manifest = ledger.manifest()
        filtering = ledger.described("filtering") == "true"
    finally:
        ledger.close()
    by_partition: dict[TopicPartition, list[ManifestRow]] = {p: [] for p in positions}
    for row in manifest:
        by_partition.setdefault(row.partition, []).append(row)
    with Admin(settings) as admin:
        begins = admin.list_offsets(by_partition, EARLIEST)
        ends = admin.list_offsets(by_partition, LATEST)
    verdicts = []
    for partition, rows in sorted(by_partition.items()):
        position = positions.get(partition)
        end = position.next_offset if position and position.next_offset is not None else 0
        check = _PartitionCheck(directory, partition, rows, end, filtering)
        check.against(settings, begins[partition].offset, ends[partition].offset)
        verdicts.append(check.verdict)
    return Verdict(partitions=verdicts, orphans=orphans_of(directory))


class _PartitionCheck:
    """Compares one partition."""

    def __init__(
        self,
        directory: Path,
        partition: TopicPartition,
        manifest: Sequence[ManifestRow],
        position: int,
        filtering: bool,
    ) -> None:
        begin = manifest[0].begin if manifest else position
        self.verdict = PartitionVerdict(partition=partition, begin=begin, end=position)
        self._directory = directory
        self._manifest = manifest
        self._filtering = filtering

    def against(self, settings: ClientSettings, log_begin: int, log_end: int) -> None:
        """Read the files and the topic, and note what differs."""
        verdict = self.verdict
        verdict.unread = max(0, log_end - verdict.end)
        self._check_tiles()
        offsets, hashes, intact = self._read_files()
        begin = max(verdict.begin, log_begin)
        verdict.unchecked = begin - verdict.begin
        expected, expected_hashes = _read_topic(
            settings, verdict.partition, begin, min(verdict.end, log_end)
        )
        verdict.records = len(expected)
        order = np.argsort(offsets, kind="stable")
        offsets, hashes = offsets[order], hashes[order]
        again = offsets[1:][offsets[1:] == offsets[:-1]]
        verdict.duplicates = len(again)
        self._trouble(again, "rows that repeat a record")
        self._check_strangers(offsets, hashes, expected, expected_hashes, begin)
        self._check_missing(np.setdiff1d(expected, offsets), intact)

    def _check_tiles(self) -> None:
        """Committed pieces lie end to end, from the first to the ledger's position."""
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

    def _read_files(self) -> tuple[Array, Array, list[ManifestRow]]:
        """Offsets and hashes of all committed rows, and the pieces whose files are whole."""
        found: list[tuple[Array, Array]] = []
        intact: list[ManifestRow] = []
        verdict = self.verdict
        for row in self._manifest:
            rows = self._read(row, row.path, row.rows)
            dead = self._read(row, row.dead_path, row.dead_letters)
            if len(rows[0]) == row.rows and len(dead[0]) == row.dead_letters:
                intact.append(row)
            found += [rows, dead]
            verdict.rows += len(rows[0])
            verdict.dead_letters += len(dead[0])
        return _join(offsets for offsets, _ in found), _join(hashes for _, hashes in found), intact

    def _read(self, row: ManifestRow, path: str | None, count: int) -> tuple[Array, Array]:
        """One file's offsets and hashes; notes where it is not what the manifest says."""
        if path is None:
            return (_EMPTY, _EMPTY)
        troubles = self.verdict.troubles
        try:
            table = pq.read_table(self._directory / path, columns=[*PLACE, RECORD_HASH])
        except (OSError, pa.ArrowException) as error:
            troubles.append(f"{path} cannot be read: {error}")
            return _EMPTY, _EMPTY
        offsets = table.column("offset").to_numpy().astype(np.int64)
        if len(offsets) != count:
            troubles.append(f"{path} holds {len(offsets)} rows, the manifest says {count}")
        for name, expected in zip(PLACE, row.partition, strict=False):
            if set(table.column(name).unique().to_pylist()) - {expected}:
                troubles.append(f"{path} holds rows that are not of {row.partition}")
        if len(offsets) and not row.begin <= offsets.min() <= offsets.max() < row.end:
            troubles.append(
                f"{path} holds offsets {offsets.min()} to {offsets.max()}, "
                f"the manifest says {row.begin} to {row.end - 1}"
            )
        return offsets, table.column(RECORD_HASH).to_numpy().astype(np.int64)

    def _check_strangers(
        self, offsets: Array, hashes: Array, expected: Array, expected_hashes: Array, begin: int
    ) -> None:
        """Rows without a record, or whose record has another hash."""
        checked = offsets >= begin
        offsets, hashes = offsets[checked], hashes[checked]
        if len(expected):
            at = np.minimum(np.searchsorted(expected, offsets), len(expected) - 1)
            known = expected[at] == offsets
            other = offsets[known & (expected_hashes[at] != hashes)]
        else:
            known, other = np.zeros(len(offsets), bool), _EMPTY
        unknown = offsets[~known]
        self.verdict.strangers = len(unknown) + len(other)
        self._trouble(unknown, "rows of offsets at which the topic has no record")
        self._trouble(other, "rows whose hash is not their record's")

    def _check_missing(self, missing: Array, intact: Sequence[ManifestRow]) -> None:
        """Records without a row: lost, or filtered where the SQL filters and the file is whole."""
        verdict = self.verdict
        if self._filtering and len(missing):
            excused = np.zeros(len(missing), bool)
            for row in intact:
                excused |= (missing >= row.begin) & (missing < row.end)
            verdict.filtered = int(excused.sum())
            missing = missing[~excused]
        verdict.holes = len(missing)
        self._trouble(missing, "records without a row")

    def _trouble(self, offsets: Array, what: str) -> None:
        if len(offsets):
            examples = ", ".join(map(str, offsets[:EXAMPLES]))
            more = ", ..." if len(offsets) > EXAMPLES else ""
            self.verdict.troubles.append(f"{len(offsets)} {what}: offsets {examples}{more}")


_EMPTY: Final = np.array([], np.int64)


def _join(arrays: Iterable[Array]) -> Array:
    return np.concatenate([_EMPTY, *arrays])


def _read_topic(
    settings: ClientSettings, partition: TopicPartition, begin: int, end: int
) -> tuple[Array, Array]:
    """Offsets and hashes of the records that the topic has in a range.

    Read by librdkafka and not by ``kohort.spark.reading``: what is judged is no witness.

    Raises:
        FetchFailed: nothing came for a whole minute, or the broker refuses.
    """
    offsets: list[int] = []
    hashes: list[int] = []
    if begin >= end:
        return _EMPTY, _EMPTY
    fetcher = RecordFetcher(settings, tell_ends=True)
    try:
        fetcher.add({partition: Position(begin)})
        at, heard = begin, time.monotonic()
        while at < end:
            messages: list[Any] = fetcher.take(_TAKE, _WAIT_S)
            for message in messages:
                offsets.append(message.offset())
                hashes.append(record_hash(message.key(), message.value()))
            problems = fetcher.problems()
            if messages:
                at = offsets[-1] + 1
            for problem in problems:
                if problem.kind is ProblemKind.END:
                    # The last offsets of a range may hold no record.
                    at = max(at, problem.offset)
                elif problem.kind is not ProblemKind.PASSING:
                    raise problem.as_error()
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > _PATIENCE_S:
                raise FetchFailed(
                    f"no record of {partition} from offset {at} (up to {end}) came within "
                    f"{_PATIENCE_S:g} s: is its leader reachable?"
                )
    finally:
        fetcher.close()
    found, kept = np.array(offsets, np.int64), np.array(hashes, np.int64)
    return found[found < end], kept[found < end]
