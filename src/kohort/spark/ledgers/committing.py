"""Parts of all ledgers: checks and rows of one commit, notes of queries and topics.

In: written files, intended pieces, queries. Out: an error, a manifest row, a name. Must not know:
how a ledger stores anything.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import (
    LedgerConflict,
    LedgerError,
    ManifestRow,
    NotedQuery,
    NotedTopic,
    WrittenFile,
)
from kohort.spark.source.offsets import OwnedRange
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead

INTENT_KEPT_FENCES: Final = 100
"""An intent that this many later owners fenced belongs to an application that is gone."""
_QUERY: Final = "query/"
TOPIC: Final = "topic/"


class Notes(ABC):
    """The part of a ledger that has queries and topics, as descriptions with names of their own."""

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

    def noted_topics(self) -> dict[str, NotedTopic]:
        """See ``SourceLedger.noted_topics``."""
        found = self._described_below(TOPIC)
        return {name: NotedTopic(**json.loads(text)) for name, text in found.items()}


def check_group(directory: Path, writes: str, group_id: str | None) -> None:
    """Raise ConfigError if the group of an application is not the one that writes the table."""
    if group_id not in (None, writes):
        raise ConfigError(
            f"group {writes} writes the table in {directory}, but this application is in group "
            f"{group_id}: two groups would each write every record; give --group {writes}, or "
            "another output directory"
        )


def cannot_write(directory: Path, error: OSError) -> ConfigError:
    """The refusal of an application that cannot begin its ledger in the directory."""
    return ConfigError(
        f"cannot write to the output directory {directory}: {error.strerror}; name a directory "
        "that this user may make or write, on a disk with free space"
    )


def is_fenced(place: str, planned: OwnedRange, position: int | None, epoch: int | None) -> bool:
    """Whether a newer owner has fenced a partition with a position that cannot be moved.

    Args:
        place: the group and the partition, for messages.
        planned: the range to move the position over.
        position: the position in the ledger.
        epoch: the fence number in the ledger; None if the partition is not there.

    Raises:
        LedgerConflict: there is no newer owner.
    """
    if epoch is not None and epoch > planned.epoch:
        return True
    found = "nothing" if epoch is None else f"position {position} under epoch {epoch}"
    raise LedgerConflict(
        f"{place}: expected position {planned.begin} under epoch {planned.epoch} before moving it "
        f"to {planned.end}, found {found} and no newer owner; nothing of this batch was committed"
    )


def check_written(directory: Path, files: Sequence[WrittenFile]) -> None:
    """Raise LedgerError if a file of a batch is not there with its size."""
    # Pieces may share a file.
    seals = {each.path: each.seal for file in files for each in file.all_files}
    for path, seal in seals.items():
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
    """The row of a piece and its files."""
    files = file.files if file else ()
    dead = file.dead if file else None
    own = files[0] if len(files) == 1 and not files[0].values else None
    return ManifestRow(
        partition=piece.partition,
        begin=piece.begin,
        end=piece.end,
        epoch=piece.epoch,
        path=own.path if own else None,
        rows=sum(each.rows for each in files),
        dead_path=dead.path if dead else None,
        dead_letters=dead.rows if dead else 0,
        seal=own.seal if own else None,
        dead_seal=dead.seal if dead else None,
        query=query,
        parts=() if own else files,
    )
