"""The table against its topic: is every record there, once, and unharmed.

What lives here: ``verify``. In go a table's directory and a cluster's settings, out comes a
verdict for each partition. The files themselves are opened and every row is compared with the
record it claims to come from: place and hash. It must not know Spark or how the files were made.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings
from kohort.client.errors import FetchFailed
from kohort.client.fetching import ProblemKind, RecordFetcher
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST, Position
from kohort.spark.filtering import Docket, Judge, TableQueries
from kohort.spark.layout import PLACE, RECORD_HASH, record_hash
from kohort.spark.ledger import ManifestRow, Seal
from kohort.spark.sqlite_ledger import SqliteLedger
from kohort.spark.table import Orphan, orphans_of, seal_of

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
        filtered: records without a row that the SQL, asked again, leaves out.
        untold: records without a row that it cannot be asked about; ``remarks`` say why.
        holes: records that the table lost.
        duplicates: rows that repeat a record.
        strangers: rows that no record of the topic belongs to, or of another hash.
        unchecked: offsets that the topic has deleted since.
        unread: records behind ``end``: not consumed yet, no fault.
        troubles: sentences about what is wrong, with examples.
        remarks: sentences about what cannot be told, which is no fault.
    """

    partition: TopicPartition
    begin: int
    end: int
    records: int = 0
    rows: int = 0
    dead_letters: int = 0
    filtered: int = 0
    untold: int = 0
    holes: int = 0
    duplicates: int = 0
    strangers: int = 0
    unchecked: int = 0
    unread: int = 0
    troubles: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The whole table. ``ok`` if nothing is missing, doubled, strange or left lying about.

    What cannot be told (``untold``) is no fault.
    """

    partitions: Sequence[PartitionVerdict]
    orphans: Sequence[Orphan]

    @property
    def ok(self) -> bool:
        """Whether the table holds what it claims, and nothing else."""
        return not self.orphans and not any(p.troubles for p in self.partitions)

    def total(self, name: str) -> int:
        """The sum of one of ``PartitionVerdict``'s numbers."""
        return sum(getattr(partition, name) for partition in self.partitions)


def verify(directory: Path, settings: ClientSettings, judge: Judge | None = None) -> Verdict:
    """Compare a table with its topics.

    Args:
        directory: of the table.
        settings: of the cluster.
        judge: tells records that the SQL left out from lost ones, such as
            ``kohort.spark.judging.SparkJudge``; without one they count as ``untold``.

    Raises:
        ConfigError: there is no table in the directory.
        ClientError: the cluster cannot be reached, or does not have the topics.
    """
    ledger = SqliteLedger.of_table(directory)
    try:
        positions = ledger.all_positions()
        manifest = ledger.manifest()
        queries = TableQueries(
            by_name=ledger.queries(), filtering=ledger.described("filtering") == "true"
        )
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
        check = _PartitionCheck(directory, partition, rows, end)
        docket = Docket(rows, check.whole, queries, judge)
        check.against(settings, begins[partition].offset, ends[partition].offset, docket)
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
    ) -> None:
        begin = manifest[0].begin if manifest else position
        self.verdict = PartitionVerdict(partition=partition, begin=begin, end=position)
        self._directory = directory
        self._manifest = manifest
        self.whole: set[int] = set()
        """Begins of the pieces whose files are what was committed."""

    def against(
        self, settings: ClientSettings, log_begin: int, log_end: int, docket: Docket
    ) -> None:
        """Read the files and the topic, and note what differs."""
        verdict = self.verdict
        verdict.unread = max(0, log_end - verdict.end)
        self._check_tiles()
        offsets, hashes = self._read_files()
        order = np.argsort(offsets, kind="stable")
        offsets, hashes = offsets[order], hashes[order]
        begin = max(verdict.begin, log_begin)
        verdict.unchecked = begin - verdict.begin
        messages = _messages(settings, verdict.partition, begin, min(verdict.end, log_end))
        expected, expected_hashes = _compare_presence(messages, offsets, docket)
        verdict.records = len(expected)
        again = offsets[1:][offsets[1:] == offsets[:-1]]
        verdict.duplicates = len(again)
        self._trouble(again, "rows that repeat a record")
        self._check_strangers(offsets, hashes, expected, expected_hashes, begin)
        self._note_missing(docket)

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

    def _read_files(self) -> tuple[Array, Array]:
        """Offsets and hashes of all committed rows."""
        found: list[tuple[Array, Array]] = []
        verdict = self.verdict
        for row in self._manifest:
            before = len(verdict.troubles)
            rows = self._read(row, row.path, row.rows, row.seal)
            dead = self._read(row, row.dead_path, row.dead_letters, row.dead_seal)
            if len(verdict.troubles) == before:
                self.whole.add(row.begin)
            found += [rows, dead]
            verdict.rows += len(rows[0])
            verdict.dead_letters += len(dead[0])
        return _join(offsets for offsets, _ in found), _join(hashes for _, hashes in found)

    def _read(
        self, row: ManifestRow, path: str | None, count: int, seal: Seal | None
    ) -> tuple[Array, Array]:
        """One file's offsets and hashes; notes where it is not what the manifest says."""
        if path is None:
            return (_EMPTY, _EMPTY)
        troubles = self.verdict.troubles
        try:
            found = seal_of(self._directory / path)
            table = pq.read_table(self._directory / path, columns=[*PLACE, RECORD_HASH])
        except (OSError, pa.ArrowException) as error:
            troubles.append(f"{path} cannot be read: {error}")
            return _EMPTY, _EMPTY
        if seal is not None and found != seal:
            troubles.append(
                f"{path} is not as it was written: it has {found.size} bytes with the CRC-32C "
                f"{found.crc:#010x}, the manifest says {seal.size} with {seal.crc:#010x}"
            )
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

    def _note_missing(self, docket: Docket) -> None:
        verdict = self.verdict
        verdict.filtered = docket.filtered
        verdict.untold = sum(docket.untold.values())
        verdict.remarks += [
            f"whether {count} records without a row were filtered or lost cannot be told: {why}"
            for why, count in docket.untold.items()
        ]
        verdict.holes = len(docket.lost)
        self._trouble(np.sort(np.array(docket.lost, np.int64)), "records without a row")

    def _trouble(self, offsets: Array, what: str) -> None:
        if len(offsets):
            examples = ", ".join(map(str, offsets[:EXAMPLES]))
            more = ", ..." if len(offsets) > EXAMPLES else ""
            self.verdict.troubles.append(f"{len(offsets)} {what}: offsets {examples}{more}")


_EMPTY: Final = np.array([], np.int64)


def _join(arrays: Iterable[Array]) -> Array:
    return np.concatenate([_EMPTY, *arrays])


def _compare_presence(
    messages: Iterable[list[Any]], have: Array, docket: Docket
) -> tuple[Array, Array]:
    """Offsets and hashes of the records; those that are not among ``have`` go to the docket."""
    offsets, hashes = [_EMPTY], [_EMPTY]
    for some in messages:
        offsets.append(np.array([message.offset() for message in some], np.int64))
        hashes.append(np.array([record_hash(m.key(), m.value()) for m in some], np.int64))
        for index in _absent(offsets[-1], have):
            docket.add(some[index])
    docket.settle()
    return np.concatenate(offsets), np.concatenate(hashes)


def _absent(offsets: Array, have: Array) -> list[int]:
    """Indexes of the offsets that are not among the sorted ones in ``have``."""
    at: Array = np.searchsorted(have, offsets)
    known: Array = at < len(have)
    known[known] = have[at[known]] == offsets[known]
    absent: list[int] = np.flatnonzero(~known).tolist()
    return absent


def _messages(
    settings: ClientSettings, partition: TopicPartition, begin: int, end: int
) -> Iterator[list[Any]]:
    """The records that the topic has in a range.

    Read by librdkafka and not by ``kohort.spark.reading``: what is judged is no witness.

    Raises:
        FetchFailed: nothing came for a whole minute, or the broker refuses.
    """
    if begin >= end:
        return
    fetcher = RecordFetcher(settings, tell_ends=True)
    try:
        fetcher.add({partition: Position(begin)})
        at, heard = begin, time.monotonic()
        while at < end:
            messages: list[Any] = fetcher.take(_TAKE, _WAIT_S)
            if messages:
                at = messages[-1].offset() + 1
                yield [message for message in messages if message.offset() < end]
                heard = time.monotonic()  # now: who looks at them may start Spark for it
            for problem in fetcher.problems():
                if problem.kind is ProblemKind.END:
                    # The last offsets of a range may hold no record.
                    at = max(at, problem.offset)
                elif problem.kind is not ProblemKind.PASSING:
                    raise problem.as_error()
            if time.monotonic() - heard > _PATIENCE_S:
                raise FetchFailed(
                    f"no record of {partition} from offset {at} (up to {end}) came within "
                    f"{_PATIENCE_S:g} s: is its leader reachable?"
                )
    finally:
        fetcher.close()
