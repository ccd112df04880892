"""Reads and writes histories on disk: JSON lines that survive a crash, or Parquet.

In: recorded facts. Out: lines, tables, and recorded facts again. Must not know: the meaning of
facts.

A JSON file starts with a header line, and so does every later life that appends to it. Every other
line is one fact in its envelope. An incomplete last line is left out and reported. A file of a
newer schema is refused. Several files are merged by time: files of one machine share its monotonic
clock; other files are aligned by their time of day.
"""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, BinaryIO, Final

from kohort.model.errors import KohortError, ProtocolError
from kohort.model.history_record import SCHEMA_VERSION, Recorded
from kohort.model.instants import Instant
from kohort.storage.fact_codec import decode_fact, encode_fact

_MARK: Final = "kohort_history"
_PARQUET_MAGIC: Final = b"PAR1"
_COLUMNS: Final = ("sequence", "at", "incarnation", "source", "kind", "fact")
_TAIL_BYTES: Final = 1 << 20
_MARK_BYTES: Final = _MARK.encode()
_UNREADABLE: Final = (ValueError, KeyError, TypeError, ProtocolError)
_BATCH_ROWS: Final = 10_000
_KIND: Final = b'","is":"'


class HistoryFileError(KohortError):
    """A file is no history, is damaged before its end, or was written by a newer kohort."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The header line that a process writes before its first fact.

    ``clock`` names the monotonic clock; files with the same clock need no alignment.
    ``wall_micros`` is the time of day, in microseconds, at instant 0 of that clock.
    """

    clock: str = "virtual"
    wall_micros: int = 0

    def line(self) -> str:
        """The header as a line without a line end."""
        return json.dumps(
            {_MARK: SCHEMA_VERSION, "clock": self.clock, "wall_micros": self.wall_micros},
            separators=(",", ":"),
        )


@dataclass(slots=True, kw_only=True)
class History:
    """Facts in their order, with remarks about the files that they came from."""

    facts: list[Recorded]
    remarks: list[str] = field(default_factory=list)


# -- writing -----------------------------------------------------------------------------------


def fact_line(recorded: Recorded) -> str:
    """One fact as a line without a line end."""
    return json.dumps(
        {
            "n": recorded.sequence,
            "at": recorded.at,
            "life": recorded.incarnation,
            "src": recorded.source,
            "is": type(recorded.fact).__name__,
            "f": encode_fact(recorded.fact),
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )


def write_history(path: Path, facts: Iterable[Recorded], header: Header | None = None) -> None:
    """Write a whole history: Parquet if the name ends in ``.parquet``, else JSON lines.

    Raises:
        HistoryFileError: Parquet is asked for and pyarrow is not installed.
    """
    if path.suffix == ".parquet":
        _write_parquet(path, facts, header or Header())
        return
    with path.open("w", encoding="utf-8") as out:
        out.write((header or Header()).line() + "\n")
        out.writelines(fact_line(recorded) + "\n" for recorded in facts)


def next_life(path: Path) -> int:
    """The number of the life that starts to append to ``path`` now, from 1 on.

    Cuts off an incomplete last line of an earlier life.
    """
    if not path.exists() or not path.stat().st_size:
        return 1
    with path.open("rb+") as data:
        size = data.seek(0, os.SEEK_END)
        start = max(0, size - _TAIL_BYTES)
        data.seek(start)
        tail = data.read()
        end = tail.rfind(b"\n") + 1
        if end < len(tail):
            data.truncate(start + end)
    for line in reversed(tail[:end].splitlines()):
        try:
            held = json.loads(line)
        except ValueError:
            continue
        if isinstance(held, dict) and isinstance(held.get("life"), int):
            return int(held["life"]) + 1
    return 1


# -- reading -----------------------------------------------------------------------------------


class OpenHistory:
    """The facts of several files, read anew for each iteration and never all in memory.

    Args:
        paths: files; facts of several files are merged by time and numbered again.
        skip: names of kinds of facts that the caller does not need. A history of one life is then
            read without them and their damages; their numbers stay free.

    Raises:
        HistoryFileError: a file cannot be read, is no history, or is newer. Damage before its end
            shows only during the iteration.
    """

    def __init__(self, paths: Sequence[Path], skip: frozenset[str] = frozenset()) -> None:
        self.skipping = Skipping(skip)
        self.remarks: list[str] = []
        """Remarks about the files."""
        pieces = [piece for path in paths for piece in _pieces(path, self.remarks)]
        shifts = _shifts([piece.header for piece in pieces])
        if len(set(shifts)) > 1:
            self.remarks.append(
                "files of different clocks were laid over each other by their time of day"
            )
        self._pieces = list(zip(pieces, shifts, strict=True))
        self.header = pieces[0].header
        """Of the first file: all facts are in its clock."""

    def __iter__(self) -> Iterator[Recorded]:
        self.skipping.count = 0
        if len(self._pieces) == 1:
            yield from self._pieces[0][0].facts(self.skipping)
            return
        streams = [_shifted(piece, shift) for piece, shift in self._pieces]
        merged = heapq.merge(*streams, key=lambda recorded: recorded.at)
        for number, recorded in enumerate(merged, start=1):
            yield replace(recorded, sequence=number)


def read_histories(paths: Sequence[Path]) -> History:
    """Facts of several files merged by time and numbered again; incomplete ends are remarked.

    Raises:
        HistoryFileError: one cannot be read, is no history, is damaged before its end, or newer.
    """
    opened = OpenHistory(paths)
    return History(facts=list(opened), remarks=opened.remarks)


@dataclass(slots=True)
class Skipping:
    """The kinds of facts that are not read, and the number of such facts so far."""

    kinds: frozenset[str] = frozenset()
    count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One life's part of a file, and a way to iterate over it."""

    header: Header
    facts: Callable[[Skipping], Iterator[Recorded]]


def _shifted(piece: _Piece, shift: int) -> Iterator[Recorded]:
    facts = piece.facts(Skipping())
    return (replace(r, at=Instant(r.at + shift)) for r in facts) if shift else facts


def _shifts(headers: list[Header]) -> list[int]:
    """For each piece, the microseconds to add so that all pieces share the first one's clock."""
    if not headers:
        return []
    first = headers[0]
    return [
        0 if header.clock == first.clock else header.wall_micros - first.wall_micros
        for header in headers
    ]


def _pieces(path: Path, remarks: list[str]) -> list[_Piece]:
    try:
        with path.open("rb") as data:
            magic = data.read(len(_PARQUET_MAGIC))
        if magic == _PARQUET_MAGIC:
            return [_parquet_piece(path)]
        return _line_pieces(path, remarks)
    except OSError as error:
        raise HistoryFileError(
            f"{path} cannot be read: {error.strerror or error}; name a history file"
        ) from error


def _line_pieces(path: Path, remarks: list[str]) -> list[_Piece]:
    """The position of each life in a file, and the end of its last complete line."""
    starts: list[tuple[Header, int, int]] = []
    at = whole = last = number = 0
    with path.open("rb") as data:
        for number, line in enumerate(data, start=1):
            header = _header_of(line, path, number) if _MARK_BYTES in line else None
            if header is not None and line.endswith(b"\n"):
                starts.append((header, at + len(line), number))
            elif not starts:
                raise HistoryFileError(_no_header(path))
            last, at = at, at + len(line)
            if line.endswith(b"\n"):
                whole = at
        if not starts:
            raise HistoryFileError(_no_header(path))
        if whole < at:
            remarks.append(_truncated(path, number))
        elif starts[-1][1] < at and not _is_fact(data, last):
            remarks.append(_truncated(path, number))
            whole = last
    ends = [start for _, start, _ in starts[1:]] + [whole]
    return [
        _Piece(header=header, facts=partial(_lines, path, start, end, number))
        for (header, start, number), end in zip(starts, ends, strict=True)
    ]


def _header_of(line: bytes, path: Path, number: int) -> Header | None:
    """The header in a line, or None; a fact may contain the header's mark, too."""
    try:
        held = json.loads(line)
    except ValueError:
        return None
    return _header(held, path, number) if isinstance(held, dict) and _MARK in held else None


def _is_fact(data: BinaryIO, start: int) -> bool:
    data.seek(start)
    try:
        _recorded(json.loads(data.readline()))
    except _UNREADABLE:
        return False
    return True


def _lines(path: Path, start: int, end: int, number: int, skipping: Skipping) -> Iterator[Recorded]:
    """The facts of the lines between two positions; ``number`` is that of the line before.

    The header of the next life may be the last line.
    """
    unwanted = {kind.encode() for kind in skipping.kinds}
    try:
        with path.open("rb") as data:
            data.seek(start)
            while start < end:
                line = data.readline()
                start += len(line)
                number += 1
                if unwanted and _kind_in(line) in unwanted:
                    skipping.count += 1
                    continue
                try:
                    held = json.loads(line.decode("utf-8", errors="surrogateescape"))
                    if _MARK in held:
                        return
                    recorded = _recorded(held)
                except _UNREADABLE as error:
                    raise HistoryFileError(_not_a_fact(path, number, error)) from error
                yield recorded
    except OSError as error:
        raise HistoryFileError(
            f"{path} cannot be read: {error.strerror or error}; name a history file"
        ) from error


def _kind_in(line: bytes) -> bytes:
    """The kind of a fact in a line of `fact_line`: texts before the kind have escaped quotes."""
    return line.partition(_KIND)[2].partition(b'"')[0]


def _truncated(path: Path, number: int) -> str:
    return f"{path} is truncated: line {number} is not whole; checked up to the fact before it"


def _not_a_fact(path: Path, number: int, error: Exception) -> str:
    if number == 1:
        return _no_header(path)
    return f"{path}, line {number}: a fact was expected ({error}); the file is damaged"


def _no_header(path: Path) -> str:
    return (
        f"{path} is no history: its first line should say {_MARK!r}; histories are written by "
        "`kohort broker --history`, the setting kohort.history.file, and the lab"
    )


def parse_line(line: bytes) -> Recorded | None:
    """The fact of a line of a history file; None for a header."""
    held = json.loads(line)
    return None if _MARK in held else _recorded(held)


def _header(held: dict[str, Any], path: Path, number: int) -> Header:
    _check_schema(held[_MARK], path, number)
    return Header(clock=str(held["clock"]), wall_micros=int(held["wall_micros"]))


def _check_schema(version: object, path: Path, number: int = 1) -> None:
    if not isinstance(version, int) or version > SCHEMA_VERSION or version < 1:
        raise HistoryFileError(
            f"{path}, line {number}: schema {version!r} of facts; this kohort reads 1 to "
            f"{SCHEMA_VERSION}: use a kohort as new as the one that recorded it"
        )


def _recorded(held: dict[str, Any]) -> Recorded:
    return Recorded(
        sequence=held["n"],
        at=Instant(held["at"]),
        incarnation=held["life"],
        source=held["src"],
        fact=decode_fact(held["is"], held["f"]),
    )


# -- Parquet -----------------------------------------------------------------------------------


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError as error:
        raise HistoryFileError(
            "histories in Parquet need pyarrow: pip install 'kohort[spark]'"
        ) from error
    return pa, pq


def _write_parquet(path: Path, facts: Iterable[Recorded], header: Header) -> None:
    pa, pq = _pyarrow()
    rows = [
        (
            r.sequence,
            r.at,
            r.incarnation,
            r.source,
            type(r.fact).__name__,
            json.dumps(encode_fact(r.fact), separators=(",", ":"), ensure_ascii=False),
        )
        for r in facts
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_COLUMNS)
    kinds = (pa.int64(), pa.int64(), pa.int64(), pa.string(), pa.string(), pa.string())
    schema = pa.schema(
        list(zip(_COLUMNS, kinds, strict=True)), metadata={_MARK.encode(): header.line().encode()}
    )
    arrays = [pa.array(c, type=k) for c, k in zip(columns, kinds, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)


def _parquet_piece(path: Path) -> _Piece:
    _, pq = _pyarrow()
    try:
        schema = pq.read_schema(path)
    except Exception as error:
        raise HistoryFileError(f"{path} is no whole Parquet file: {error}") from error
    meta = (schema.metadata or {}).get(_MARK.encode())
    if meta is None or schema.names != list(_COLUMNS):
        raise HistoryFileError(f"{path} is a Parquet file, but no history of kohort")
    return _Piece(header=_header(json.loads(meta), path, 1), facts=partial(_rows, path, pq))


def _rows(path: Path, pq: Any, skipping: Skipping) -> Iterator[Recorded]:
    first = 1
    with pq.ParquetFile(path) as table:
        for batch in table.iter_batches(batch_size=_BATCH_ROWS):
            numbers: Sequence[int] = range(first, first + batch.num_rows)
            first += batch.num_rows
            # Columns become lists in a third of the time of rows.
            columns = [column.to_pylist() for column in batch.columns]
            if skipping.kinds:
                wanted = [kind not in skipping.kinds for kind in columns[_COLUMNS.index("kind")]]
                numbers, *columns = ([*compress(each, wanted)] for each in (numbers, *columns))
                skipping.count += len(wanted) - len(numbers)
            *columns, texts = columns
            for number, sequence, at, incarnation, source, kind, fields in zip(
                numbers, *columns, _fields(path, numbers, texts), strict=True
            ):
                try:
                    fact = decode_fact(kind, fields)
                except ProtocolError as error:
                    raise HistoryFileError(_not_a_row(path, number, error)) from error
                yield Recorded(
                    sequence=sequence,
                    at=Instant(at),
                    incarnation=incarnation,
                    source=source,
                    fact=fact,
                )


def _fields(path: Path, numbers: Sequence[int], texts: Sequence[str]) -> Iterator[Any]:
    """The fields of facts; one call for many texts takes half the time."""
    try:
        found = json.loads(f"[{','.join(texts)}]")
    except ValueError:
        found = ()
    if len(found) == len(texts):
        yield from found
        return
    for number, text in zip(numbers, texts, strict=True):
        try:
            yield json.loads(text)
        except ValueError as error:
            raise HistoryFileError(_not_a_row(path, number, error)) from error


def _not_a_row(path: Path, number: int, error: Exception) -> str:
    return f"{path}, row {number}: {error}"
