"""Columns for consumers; the extra ``arrow`` is imported when columns are asked for.

In: settings; Arrow record batches. Out: a fetcher of columns; numbers and places of their rows.
Must not know: the group, fetching.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kohort.client.config import ClientSettings
from kohort.client.errors import WrongUse
from kohort.model.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.client.fetching.column_fetcher import ColumnFetcher

MOST_ROWS: Final = 100_000
"""The most rows of a batch, unless the application gives another number."""


def import_columns() -> None:
    """Import what columns need.

    Raises:
        WrongUse: pyarrow or numpy is not installed.
    """
    try:
        import kohort.client.fetching.column_fetcher  # noqa: F401, PLC0415 - needs an extra
    except ImportError as error:
        raise WrongUse(
            f"poll_arrow() needs the extra arrow, and {error.name} is missing: "
            "pip install 'kohort[arrow]'"
        ) from error


def column_fetcher(settings: ClientSettings) -> ColumnFetcher:
    """A new fetcher of columns.

    Raises:
        WrongUse: pyarrow or numpy is not installed.
        ConfigError: no bootstrap server, or a certificate cannot be read.
    """
    import_columns()
    from kohort.client.fetching.column_fetcher import ColumnFetcher  # noqa: PLC0415 - needs an extra

    return ColumnFetcher(settings)


def bytes_of_values(batch: pa.RecordBatch) -> int:
    """The size of all values in bytes; a few bytes wrong if there are nulls."""
    rows, size = int(batch.num_rows), int(batch.column("value").nbytes)
    return max(0, size - 4 * (rows + 1))


def places_of(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, int]]:
    """Partition and offset of each row."""
    names = ("topic", "partition", "offset")
    columns = [batch.column(name).to_pylist() for name in names]
    for topic, partition, offset in zip(*columns, strict=True):
        yield TopicPartition(topic, partition), offset
