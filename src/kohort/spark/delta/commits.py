"""The contents of the commits of a kohort table: names of numbers, notes, added files.

In: ranges and written files. Out: a change for ``kohort.spark.delta.log``, and the meaning of the
notes of earlier changes. Must not know: Spark, comparisons.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kohort.model.ids import TopicPartition
from kohort.spark.delta.log import Change, DeltaFile
from kohort.spark.ledgers.committing import manifest_row, new_heads
from kohort.spark.ledgers.ledger import DataFile, ManifestRow, WrittenFile
from kohort.spark.source.offsets import OwnedRange
from kohort.spark.source.planning import Piece
from kohort.spark.state.heads import StateHead
from kohort.spark.tables import layout
from kohort.spark.tables.piece_files import PLACE_SCHEMA

if TYPE_CHECKING:
    from kohort.spark.delta.rewind import Swap

DEAD_LETTERS: Final = "dead_letters"
"""The entry of a commit's note that lists its files of dead letters."""

_REWOUND: Final = "rewound"


def batch_change(
    directory: Path,
    moved: Mapping[TopicPartition, OwnedRange],
    files: Iterable[WrittenFile | None],
    query: str | None,
    heads: Callable[[TopicPartition], StateHead | None],
) -> Change:
    """The commit of one batch: files, new positions, the epochs that allow them, new states.

    Raises as ``new_heads``; ``heads`` are the present heads of states.
    """
    written = [file for file in files if file is not None]
    numbers = {position_of(p): one.end for p, one in moved.items()}
    numbers |= {epoch_of(p): one.epoch for p, one in moved.items()}
    numbers |= head_numbers(new_heads(written, heads))
    return Change(
        numbers=numbers,
        files=_added(directory, written),
        note={
            "ranges": {str(p): [one.begin, one.end, one.epoch] for p, one in moved.items()},
            "query": query,
            DEAD_LETTERS: [
                _noted_dead(directory, file.partition, file.dead) for file in written if file.dead
            ],
        },
    )


def pieces_in(
    notes: Iterable[Mapping[str, Any]], begins: Mapping[TopicPartition, int | None]
) -> list[ManifestRow]:
    """The committed pieces, from the notes of the commits that are still there, oldest first.

    If Delta removed the first commits of a partition, one piece without a query covers them.
    """
    pieces: dict[TopicPartition, list[ManifestRow]] = {}
    for note in notes:
        for partition, offset in cuts_in(note).items():
            pieces[partition] = [
                dataclasses.replace(piece, end=min(piece.end, offset))
                for piece in pieces.get(partition, ())
                if piece.begin < offset
            ]
        for text, (begin, end, epoch) in note.get("ranges", {}).items():
            partition = TopicPartition.of(text)
            mine = pieces.setdefault(partition, [])
            first = begins.get(partition)
            if not mine and first is not None and first < begin:
                mine.append(_noted_piece(partition, first, begin, 0, None))
            mine.append(_noted_piece(partition, begin, end, epoch, note["query"]))
    return [piece for _, some in sorted(pieces.items()) for piece in some]


def rewind_change(
    offsets: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int], swap: Swap
) -> Change:
    """The commit that sets positions back, fences all owners, and takes out the rows."""
    numbers = {position_of(p): offset for p, offset in offsets.items()}
    numbers |= {epoch_of(p): epochs[p] for p in offsets}
    return Change(
        numbers=numbers,
        files=swap.added,
        replaced=swap.removed,
        takes_rows=True,
        note={_REWOUND: {str(p): offset for p, offset in offsets.items()}},
    )


def cuts_in(note: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The positions that a rewind set, from its note; empty for other notes."""
    return {TopicPartition.of(text): offset for text, offset in note.get(_REWOUND, {}).items()}


def _noted_piece(
    partition: TopicPartition, begin: int, end: int, epoch: int, query: str | None
) -> ManifestRow:
    piece = Piece(partition=partition, begin=begin, end=end, epoch=epoch)
    return manifest_row(piece, None, query)


def _noted_dead(directory: Path, partition: TopicPartition, file: DataFile) -> dict[str, Any]:
    """The entry for a file of dead letters in the note of a commit."""
    status = (directory / file.path).stat()
    return {
        "path": file.path.removeprefix(f"{layout.DEAD_LETTERS}/"),
        "size": status.st_size,
        "modified": status.st_mtime_ns // 1_000_000,
        "rows": file.rows,
        "topic": partition.topic,
        "partition": partition.partition,
    }


def _added(directory: Path, written: Iterable[WrittenFile]) -> list[DeltaFile]:
    """The files of all pieces; a file with rows of several pieces is there once."""
    parts: dict[str, list[tuple[TopicPartition, DataFile]]] = {}
    for file in written:
        for part in file.files:
            parts.setdefault(part.path, []).append((file.partition, part))
    return [_as_delta(directory, some) for some in parts.values()]


def _as_delta(directory: Path, parts: Sequence[tuple[TopicPartition, DataFile]]) -> DeltaFile:
    [*_, (_, file)] = parts
    topics = sorted(partition.topic for partition, _ in parts)
    numbers = sorted(partition.partition for partition, _ in parts)
    least: dict[str, Any] = {"topic": topics[0], "partition": numbers[0]}
    most: dict[str, Any] = {"topic": topics[-1], "partition": numbers[-1]}
    offsets = [part.offsets for _, part in parts if part.offsets is not None]
    if len(offsets) == len(parts):
        least["offset"] = min(first for first, _ in offsets)
        most["offset"] = max(last for _, last in offsets)
    stats = {
        "numRecords": sum(part.rows for _, part in parts),
        "minValues": least,
        "maxValues": most,
        "nullCount": dict.fromkeys(PLACE_SCHEMA.names, 0),
    }
    return DeltaFile.at(directory, file.path, stats, file.values)


def owners_in(notes: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, str]]:
    """Epoch and member of the last acquisition of each partition, from the newest notes."""
    owners: dict[str, tuple[int, str]] = {}
    for note in notes:
        for partition, epoch in note.get("acquired", {}).items():
            owners.setdefault(partition, (epoch, note["member"]))
    return owners


def heads_in(number: Callable[[str], int | None], partition: TopicPartition) -> StateHead | None:
    """The head of a partition's state, from two numbers of the log."""
    offset, token = (number(name) for name in _state_of(partition))
    return None if offset is None or token is None else StateHead(offset, token)


def head_numbers(heads: Mapping[TopicPartition, StateHead]) -> dict[str, int]:
    """The numbers that move heads of states."""
    numbers: dict[str, int] = {}
    for partition, head in heads.items():
        numbers |= zip(_state_of(partition), (head.offset, head.token), strict=True)
    return numbers


def _state_of(partition: TopicPartition) -> tuple[str, str]:
    return f"kohort/{partition}/state-offset", f"kohort/{partition}/state-token"


def _numbered(what: str) -> Callable[[TopicPartition], str]:
    return lambda partition: f"kohort/{partition}/{what}"


# The names of a partition's numbers.
epoch_of: Final = _numbered("epoch")
"""The fence number."""
position_of: Final = _numbered("position")
begin_of: Final = _numbered("begin")
"""The first offset in the table."""
generation_of: Final = _numbered("generation")
"""The generation of the last owner."""
leader_of: Final = _numbered("leader")
"""The latest leader epoch of the records before the position."""


def count_of(topic: str) -> str:
    """The name of the number of partitions of a topic that ever had an owner, at most."""
    return f"kohort/{topic}/partitions"
