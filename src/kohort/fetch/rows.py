"""The types that the decoders of records take and return.

In: nothing. Out: types. Must not know: how records are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from kohort.fetch.sections import Section
from kohort.model.errors import KohortError
from kohort.model.ids import TopicPartition

RAW_HEADERS: Final = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
"""Headers with names that were not checked for UTF-8 yet."""

Array = Any
"""A numpy array."""


class Malformed(KohortError):
    """The bytes of a batch are not records, although its checksum is right."""


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
        times: milliseconds since 1970, int64.
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


def check(sound: bool, otherwise: str) -> None:
    """Raise Malformed unless the records are sound."""
    if not sound:
        raise Malformed(otherwise)
