"""Turns record batches of Kafka's format 2 into one Arrow record batch in Spark's Kafka columns.

In: decompressed and checked batches of partitions. Out: an Arrow record batch. Must not know:
brokers, compression, transactions, tasks.

Two decoders read the records. The one of numba is fast, and needs the extra ``arrow`` and a moment
to load (``load``). The one of numpy is there at once, and tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from kohort.fetch import numpy_decoder
from kohort.fetch.rows import Malformed, Rows, Run, array_of
from kohort.fetch.sections import Damaged

HEADERS: Final = "headers"
_WITH_TEXT: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: _WITH_TEXT,
}
WITH_HEADERS: Final = tuple(_TYPES)
"""All columns of Spark's Kafka source."""
COLUMNS: Final = tuple(name for name in _TYPES if name != HEADERS)
"""The columns that it has unless headers are asked for."""

_SMALLEST_RECORD: Final = 7
"""Bytes of a record of nulls: its length, attributes, two deltas, two lengths and a count."""

_INT64_MAX: Final = 2**63 - 1

_MOST_REPEATED: Final = 8 << 20
"""Most bytes of a column with one text that is kept for later batches."""

Decoder = Callable[[Sequence[Run], bool, bool], Rows]
"""Reads the records of runs; the other arguments: with their headers, and in place.

A decoder may copy the values all the same.
"""


class _Chosen:
    """The decoder of this process."""

    decode: Decoder = staticmethod(numpy_decoder.decode)


def load() -> bool:
    """Use the compiled decoder from now on; whether numba is there.

    Compiling takes seconds, once on each machine: numba keeps the result in its cache. Loading the
    result takes about a second of CPU in each process.
    """
    try:
        from kohort.fetch import compiled_decoder  # noqa: PLC0415 - needs the extra arrow
    except ImportError:
        return False
    _Chosen.decode = staticmethod(compiled_decoder.decode)
    return True


def is_compiled() -> bool:
    """Whether the compiled decoder is in use."""
    return _Chosen.decode is not numpy_decoder.decode


def arrow_schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of columns of Spark's Kafka source, in the given order."""
    return pa.schema([(name, _TYPES[name]) for name in columns])


def to_arrow(
    runs: Sequence[Run], columns: Sequence[str] = COLUMNS, *, in_place: bool = False
) -> pa.RecordBatch:
    """The records of the runs with ``begin <= offset < end``, run by run, in order of offsets.

    Args:
        runs: at least one.
        columns: the wanted ones of ``WITH_HEADERS``, at least one.
        in_place: the values may be written over the sections, which have no meaning afterwards.

    Raises:
        Damaged: a batch does not hold the records that its header announces.
    """
    return to_arrow_counted(runs, columns, in_place=in_place)[0]


def to_arrow_counted(
    runs: Sequence[Run], columns: Sequence[str] = COLUMNS, *, in_place: bool = False
) -> tuple[pa.RecordBatch, list[int]]:
    """As `to_arrow`, and the number of rows of each run."""
    headers = HEADERS in columns
    for run in runs:
        _check_headers(run)
    try:
        rows = _Chosen.decode(runs, headers, in_place)
        arrays = [_MAKERS[name](runs, rows) for name in columns]
    except Malformed as error:
        raise _located(runs, headers, error) from error
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns)), rows.counts


def _check_headers(run: Run) -> None:
    """Refuse headers that do not fit each other or their records."""
    for header, records in run.sections:
        count, span = header.record_count, header.last_offset_delta
        why = ""
        if not 0 <= count * _SMALLEST_RECORD <= len(records):
            why = f"it announces {count} records in {len(records)} bytes"
        elif not (header.base_offset >= 0 <= span and header.next_offset <= _INT64_MAX):
            why = f"its last offset is {header.last_offset}"
        if why:
            raise Damaged(run.partition, header.base_offset, why)
    for (before, _), (after, _) in pairwise(run.sections):
        if after.base_offset < before.next_offset:
            why = f"the batch before it ends at offset {before.last_offset}"
            raise Damaged(run.partition, after.base_offset, why)


def _topics(runs: Sequence[Run], rows: Rows) -> pa.Array:
    topics = [  # partitions of one topic at once
        _repeated(topic, sum(count for _, count in group))
        for topic, group in groupby(
            zip(runs, rows.counts, strict=True), key=lambda pair: pair[0].partition.topic
        )
    ]
    return topics[0] if len(topics) == 1 else pa.concat_arrays(topics)


def _partitions(runs: Sequence[Run], rows: Rows) -> pa.Array:
    numbers = np.array([run.partition.partition for run in runs], np.int32)
    return array_of(pa.int32(), np.repeat(numbers, rows.counts))


def _repeated(text: str, count: int) -> pa.Array:
    rounded = 1 << count.bit_length()
    if rounded * (len(text) + 4) > _MOST_REPEATED:
        return _repeats(text, count)
    return _kept_repeats(text, rounded).slice(0, count)


def _repeats(text: str, count: int) -> pa.Array:
    data = text.encode()
    edges = np.arange(count + 1, dtype=np.int32) * len(data)
    room = pa.py_buffer(data * count)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(edges), room])


_kept_repeats = lru_cache(maxsize=4)(_repeats)
"""The last ones: batches of one consumer mostly have the same topics."""


def _with_text(headers: pa.Array) -> pa.Array:
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), _WITH_TEXT)
    try:
        return headers.cast(_WITH_TEXT)
    except pa.ArrowInvalid as error:
        raise Malformed(f"a header's name is not UTF-8: {error}") from error


_MAKERS: Final[Mapping[str, Callable[[Sequence[Run], Rows], pa.Array]]] = {
    "key": lambda _, rows: rows.keys,
    "value": lambda _, rows: rows.values,
    "topic": _topics,
    "partition": _partitions,
    "offset": lambda _, rows: array_of(pa.int64(), rows.offsets),
    "timestamp": lambda _, rows: array_of(_TYPES["timestamp"], rows.times),
    "timestampType": lambda _, rows: array_of(pa.int32(), rows.kinds),
    HEADERS: lambda _, rows: _with_text(rows.headers),
}


def _located(runs: Sequence[Run], headers: bool, error: Malformed) -> Damaged:
    """The error with the place of the first batch that does not decode."""
    places = [(run, section) for run in runs for section in run.sections]
    if error.section is not None:
        run, section = places[error.section]
        return Damaged(run.partition, section.header.base_offset, str(error))
    for run, section in places:
        try:
            rows = _Chosen.decode([run._replace(sections=[section])], headers, False)
            if headers:
                _with_text(rows.headers)
        except Malformed as found:
            return Damaged(run.partition, section.header.base_offset, str(found))
    raise AssertionError(f"batches that decode one by one, and not together: {error}")
