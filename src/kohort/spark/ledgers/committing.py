"""Parts of all ledgers: checks and rows of one commit, notes of queries.

In: written files, intended pieces, queries. Out: an error, a manifest row, a name. Must not know:
how a ledger stores anything.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import (
    LedgerConflict,
    LedgerError,
    ManifestRow,
    NotedQuery,
    WrittenFile,
)
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead

_QUERY: Final = "query/"


class QueryNotes(ABC):
    """The part of a ledger that notes queries, as descriptions with names of their own."""

    @abstractmethod
    def describe(self, name: str, value: str) -> None:
        """See ``Ledger.describe``."""

    @abstractmethod
    def _described_below(self, prefix: str) -> dict[str, str]:
        """The descriptions with names that begin with the prefix, by the rest of the name."""

    def note_query(self, query: NotedQuery) -> str:
        """See ``Ledger.note_query``."""
        text = query.as_json()
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.describe(_QUERY + name, text)
        return name

    def queries(self) -> dict[str, NotedQuery]:
        """See ``Ledger.queries``."""
        found = self._described_below(_QUERY)
        return {name: NotedQuery.parse(text) for name, text in found.items()}


def check_written(directory: Path, files: Sequence[WrittenFile]) -> None:
    """Raise LedgerError if a file of a batch is not there with its size."""
    # Pieces may share a file.
    for path, seal in dict(pair for file in files for pair in file.sealed).items():
        if seal is None:
            continue
        try:
            size = (directory / path).stat().st_size
        except FileNotFoundError:
            size = None
        if size != seal.size:
            raise LedgerError(
                f"{directory / path} was written with {seal.size} bytes and "
                f"{'is gone' if size is None else f'has {size} bytes'}: something else removes "
                "or changes files of the table; nothing of this batch was committed; "
                "start the application again"
            )


def new_heads(
    files: Iterable[WrittenFile], heads: Callable[[TopicPartition], StateHead | None]
) -> dict[TopicPartition, StateHead]:
    """The new heads of states; ``files`` are those of partitions without a newer fence.

    ``heads`` gives the present heads.

    Raises:
        LedgerError: a state file is gone that the batch needed.
        LedgerConflict: the batch began with another state than the present one.
    """
    found: dict[TopicPartition, StateHead] = {}
    for file in files:
        if file.state is None:
            continue
        if file.state.head is None:
            raise LedgerError(f"{file.state.missing}; nothing of this batch was committed")
        present = found.get(file.partition, heads(file.partition))
        if present != file.state.base:
            raise LedgerConflict(
                f"the batch began with the state {file.state.base} of {file.partition}, but the "
                f"ledger has {present} and no newer owner; nothing of this batch was committed"
            )
        found[file.partition] = file.state.head
    return found


def manifest_row(piece: Piece, file: WrittenFile | None, query: str | None) -> ManifestRow:
    """The row of a piece and its file."""
    return ManifestRow(
        partition=piece.partition,
        begin=piece.begin,
        end=piece.end,
        epoch=piece.epoch,
        path=file.path if file else None,
        rows=file.rows if file else 0,
        dead_path=file.dead_path if file else None,
        dead_letters=file.dead_letters if file else 0,
        seal=file.seal if file else None,
        dead_seal=file.dead_seal if file else None,
        query=query,
        parts=file.parts if file else (),
    )
