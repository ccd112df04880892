"""Describes a table for people: its kind, columns, sizes and topics.

In: the directory of a table. Out: a description. Must not know: Spark, brokers, the layout of a
ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from kohort.spark.tables.seals import readable
from kohort.spark.tables.table import kind_of, open_ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """A table at one moment.

    Attributes:
        kind: ``delta`` or ``parquet``.
        group: the group that writes it.
        columns: the types of the columns by name, in Delta's words.
        rows: the number of rows in the committed files.
        files: the number of these files, and their ``bytes``.
        dead_letters: the number of malformed records, in ``dead_letter_files``.
        replaced_files: files that a compaction replaced and that are not removed yet.
        topics: the number of partitions of each topic when the table first saw it.
        queries: the number of different queries that made rows.
    """

    kind: str
    group: str
    columns: Mapping[str, str]
    rows: int
    files: int
    bytes: int
    dead_letters: int
    dead_letter_files: int
    replaced_files: int
    topics: Mapping[str, int]
    queries: int


def describe(directory: Path) -> TableDescription:
    """The description of a table.

    Raises:
        ConfigError: there is no table in the directory.
        LedgerError: the ledger or a file cannot be read.
    """
    with closing(open_ledger(directory)) as ledger:
        kind = kind_of(directory)
        assert kind is not None
        files, dead = ledger.files(), ledger.files(dead=True)
        schema = json.loads(ledger.described("schema") or '{"fields": []}')
        return TableDescription(
            kind=kind,
            group=ledger.group_id,
            columns={each["name"]: _type_name(each["type"]) for each in schema["fields"]},
            rows=_rows(directory, files),
            files=len(files),
            bytes=sum(files.values()),
            dead_letters=_rows(directory, dead),
            dead_letter_files=len(dead),
            replaced_files=len(ledger.replaced_files()),
            topics={name: each.partitions for name, each in ledger.noted_topics().items()},
            queries=len(ledger.queries()),
        )


def _type_name(kind: str | Mapping[str, str]) -> str:
    return kind if isinstance(kind, str) else kind["type"]


def _rows(directory: Path, files: Iterable[str]) -> int:
    rows = 0
    for path in files:
        with readable(directory / path):
            rows += pq.read_metadata(directory / path).num_rows
    return rows
