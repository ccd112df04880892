"""Reads segment files of ``__consumer_offsets`` for ``kohort explain``, as a broker stores them.

In: the path of a ``.log`` file in a broker's folder ``__consumer_offsets-N``. Out: records with
their times; remarks for people. Must not know: the meaning of records (``offsets_records``). One
batch is in memory at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from kohort.cli.explain.offsets_records import TOPIC, told_by
from kohort.explain.events import Place
from kohort.explain.lines.line_counts import LineCounts
from kohort.explain.told import Told
from kohort.model.errors import ConfigError, ProtocolError
from kohort.storage.errors import RefusedBatch, StorageError
from kohort.storage.record_batch import (
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    BatchHeader,
    check_stored,
    parse_header,
)
from kohort.storage.records import records_of

_MAGIC_AT: Final = 16
_LARGEST_BATCH: Final = 100_000_000
_FOLDER: Final = re.compile(rf"{TOPIC}-(\d+)$")


def is_segment(beginning: bytes) -> bool:
    """Whether a file begins with a batch of records in the format of Kafka 0.11 and later."""
    if len(beginning) < HEADER_SIZE or beginning[_MAGIC_AT] != MAGIC:
        return False
    header = parse_header(beginning)
    return header.base_offset >= 0 and header.record_count >= 0 and _has_length(header)


def _has_length(header: BatchHeader) -> bool:
    return HEADER_SIZE - LENGTH_END <= header.batch_length <= _LARGEST_BATCH


class SegmentFile:
    """One segment of a partition of ``__consumer_offsets``."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self.name = str(path)
        self.bytes = path.stat().st_size
        found = _FOLDER.search(str(path.absolute().parent))
        self._home = int(found[1]) if found else None
        self._counts = LineCounts()
        self._damage = ""
        try:
            self._file = stack.enter_context(path.open("rb"))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}; name a log file") from error

    def events(self, advance: Callable[[], None]) -> Iterator[tuple[float, Told]]:
        """The records with their times."""
        for header, batch in self._batches():
            advance()
            if header.is_control:
                continue
            try:
                records = list(records_of(header, batch))
            except RefusedBatch as error:
                self._damage = str(error)
                return
            for record in records:
                place, at = Place(self.name, record.offset), record.timestamp / 1_000
                self._counts.lines += 1
                try:
                    told = told_by(record.key, record.value, at=at, place=place, home=self._home)
                except ProtocolError:
                    self._counts.unknown += 1
                    continue
                self._counts.understood += bool(told)
                self._counts.others += not told
                yield from ((at, each) for each in told)

    def _batches(self) -> Iterator[tuple[BatchHeader, bytes]]:
        position = 0
        while head := self._file.read(HEADER_SIZE):
            if not head.strip(b"\0"):
                return  # the place that a broker reserved for later batches
            if len(head) < HEADER_SIZE or not is_segment(head):
                self._damage = f"no record batch begins at byte {position:,}"
                return
            header = parse_header(head)
            batch = head + self._file.read(header.size - HEADER_SIZE)
            if len(batch) < header.size:
                self._damage = f"the batch at byte {position:,} is not complete"
                return
            try:
                check_stored(header, batch, f"byte {position:,}")
            except StorageError as error:
                self._damage = str(error)
                return
            yield header, batch
            position += header.size

    def position(self) -> int:
        """Bytes that were read so far."""
        return self._file.tell()

    def remarks(self) -> Iterator[str]:
        """Sentences that a reader of the explanation must know about this file."""
        if self._damage:
            yield f"{self.name} is damaged: {self._damage}; the records before it were read"
        if self._counts.unknown:
            yield f"{self.name}: {self._counts.unknown:,} records are in an unknown form"

    def as_json(self) -> dict[str, Any]:
        """Counts of records and remarks, for programs."""
        return {"file": self.name, **asdict(self._counts), "remarks": list(self.remarks())}
