"""Reads the state of a partition, for people and for the judge of tables.

In: the directory of a table, a partition. Out: its keys and values at the newest head. Must not
know: functions of users, Spark. A pipeline may write meanwhile. If it removes files of the state
before they are read, the newer state is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from kohort.model.ids import TopicPartition
from kohort.spark.state.copies import StateCopy, opened_copy
from kohort.spark.state.files import StateFileGone, StateFolder
from kohort.spark.state.heads import StateHead
from kohort.spark.tables.table import open_ledger

_TRIES: Final = 5


def heads_of(directory: Path) -> Mapping[TopicPartition, StateHead]:
    """The heads of all states of a table; ConfigError if there is no table."""
    with closing(open_ledger(directory)) as ledger:
        return dict(sorted(ledger.states().items()))


@contextmanager
def restored(
    directory: Path, partition: TopicPartition
) -> Iterator[tuple[StateHead | None, StateCopy]]:
    """The newest head of a partition and a copy of its state, which is removed afterwards.

    Raises:
        ConfigError: there is no table in the directory.
        LedgerError: a state file is gone or damaged.
    """
    folder = StateFolder(directory, partition)
    with (
        tempfile.TemporaryDirectory(prefix="kohort-state-") as place,
        opened_copy(Path(place), partition) as copy,
    ):
        head = _advanced(copy, folder)
        yield head, copy


def _advanced(copy: StateCopy, folder: StateFolder) -> StateHead | None:
    """Bring a copy to the newest head."""
    for left in reversed(range(_TRIES)):
        head = heads_of(folder.directory).get(folder.partition)
        try:
            copy.advance(folder, head)
        except StateFileGone:
            if not left or head == heads_of(folder.directory).get(folder.partition):
                raise
        else:
            return head
    raise AssertionError("the last try returns or raises")


def shown(data: bytes) -> str:
    """Bytes as a line of text; bytes that are no printable UTF-8 become escapes."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )
