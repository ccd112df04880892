"""The types that the decoders of records take and return.

In: nothing. Out: types. Must not know: how records are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kohort.fetch.sections import Section
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition

RAW_HEADERS: Final = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
"""Headers with names that were not checked for UTF-8 yet."""

Array = Any
"""A numpy array."""


class Malformed(KohortError):
    """The bytes of a batch are not records, although its checksum is right.

    Attributes:
        section: the number of the batch in all runs, from 0; None if it is not known.
    """

    def __init__(self, why: str, section: int | None = None) -> None:
        self.section = section
        super().__init__(why)


class Run(NamedTuple):
    """Batches of one partition in order of offsets, of which the records in a range are wanted."""

    partition: TopicPartition
    sections: Sequence[Section]
    begin: int
    end: int


class Rows(NamedTuple):
    """The decoded records of runs, one run after the other.

    Attributes:
        counts: the number of rows of each run.
        offsets: int64.
        times: microseconds since 1970, int64.
        kinds: Spark's timestamp type, int32: 0 for the producer's time, 1 for the broker's.
        keys, values: of type binary.
        headers: of type ``RAW_HEADERS``; None if they were not asked for.
    """

    counts: list[int]
    offsets: Array
    times: Array
    kinds: Array
    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None


def array_of(kind: pa.DataType, values: Array, missing: Array | None = None) -> pa.Array:
    """An Arrow array over the memory of a numpy array; null where ``missing``.

    ``pa.array`` and ``pa.scalar`` would import pandas, if it is installed. That takes more than a
    second, in which an event loop stands still.
    """
    present = None if missing is None else packed(~missing)
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(values)])


def bytes_of(values: Sequence[bytes | None]) -> pa.Array:
    """An Arrow array of bytes, without pandas as `array_of`."""
    edges = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or b"") for value in values], out=edges[1:])
    room = pa.py_buffer(b"".join(value or b"" for value in values))
    present = packed(np.array([value is not None for value in values], bool))
    return pa.Array.from_buffers(pa.binary(), len(values), [present, pa.py_buffer(edges), room])


def headers_of(counts: Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """An array of type ``RAW_HEADERS`` from all names and values; null for rows without any."""
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(RAW_HEADERS.value_type))
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    return pa.Array.from_buffers(
        RAW_HEADERS, len(counts), [packed(counts > 0), pa.py_buffer(edges)], children=[pairs]
    )


def packed(present: Array) -> pa.Buffer:
    """The validity bits of an Arrow array."""
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def check(sound: bool, otherwise: str) -> None:
    """Raise Malformed unless the records are sound."""
    if not sound:
        raise Malformed(otherwise)
