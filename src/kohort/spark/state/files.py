"""State files: the changes of one batch, or a snapshot of all keys and values.

In: keys and values. Out: immutable files ``DIR/_kohort/state/TOPIC/PARTITION/OFFSET-TOKEN``, and
their entries. Must not know: ledgers, local copies.

A file of changes names its *base*, the head before the batch. Sometimes it also names a *snapshot*:
a file with the whole state of the base. So a reader goes back from the head to the head that the
reader has, or to a snapshot, and never further. A file is Arrow's IPC format; its name has its
CRC-32C.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kohort.model.ids import TopicPartition
from kohort.spark.ledgers.ledger import LedgerError
from kohort.spark.state.heads import StateHead, folder_of
from kohort.spark.tables.durable import make_folder, sync
from kohort.spark.tables.layout import TEMPORARY, no_right
from kohort.spark.tables.seals import seal_of

ENTRIES_AT_ONCE: Final = 10_000

_NOTE: Final = b"kohort"
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])

Entry = tuple[bytes, bytes | None]
"""A key and its value; None as a value deletes the key."""


class StateFileGone(LedgerError):
    """A state file is not there: a newer head made it superfluous, or something removed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateNote:
    """The metadata of a state file.

    Attributes:
        base: the head before the changes; for a snapshot, the head with the same state.
        snapshot: a file with the whole state of the base; None if there is none.
        entries: entries in this file.
        changes: entries in this file and in the files that it needs, without those of the snapshot.
        files: the number of these files.
        whole: entries of the snapshot that it needs.
    """

    base: str | None
    snapshot: str | None = None
    entries: int
    changes: int
    files: int
    whole: int = 0


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The state files of one partition."""

    directory: Path
    partition: TopicPartition

    @property
    def path(self) -> Path:
        """The folder."""
        return folder_of(self.directory, self.partition)

    def write(self, offset: int, entries: Iterable[Entry], note: StateNote) -> StateHead:
        """Write a file; it is on disk and has its name afterwards."""
        make_folder(self.path)
        temporary = self.path / f"{offset:020d}-{secrets.token_hex(8)}{TEMPORARY}"
        text = json.dumps(asdict(note), sort_keys=True).encode()
        schema = _SCHEMA.with_metadata({_NOTE: text})
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        left = iter(entries)
        try:
            with pa.ipc.new_file(temporary, schema, options=options) as writer:
                while some := list(islice(left, ENTRIES_AT_ONCE)):
                    keys, values = zip(*some, strict=True)
                    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
                    writer.write_batch(pa.record_batch(columns, schema=schema))
            sync(temporary)
            head = StateHead.of(offset, seal_of(temporary).crc, secrets.randbits(31))
            os.rename(temporary, self.path / str(head))
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync(self.path)
        return head

    def note(self, head: StateHead) -> StateNote:
        """The metadata of a file.

        Raises:
            StateFileGone: the file is not there.
            LedgerError: the file cannot be read.
        """
        with self._opened(head) as file, pa.ipc.open_file(file) as reader:
            return StateNote(**json.loads(reader.schema.metadata[_NOTE]))

    def read(self, head: StateHead) -> Iterator[list[Entry]]:
        """The entries of a file, in lists of at most ``ENTRIES_AT_ONCE``; raises as ``note``."""
        with self._opened(head) as file, pa.ipc.open_file(file) as reader:
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                columns = [column.to_pylist() for column in batch.columns]
                yield list(zip(*columns, strict=True))

    def remove_before(self, offset: int) -> None:
        """Remove the files of states before an offset, which no head needs any more.

        Unfinished ones, too: only a former owner can still be writing them.
        """
        for name in os.listdir(self.path):
            if int(name.partition("-")[0]) < offset:
                (self.path / name).unlink(missing_ok=True)

    def _opened(self, head: StateHead) -> Any:
        path = self.path / str(head)
        try:
            crc = seal_of(path).crc
            file = pa.memory_map(str(path))
        except FileNotFoundError as error:
            raise StateFileGone(
                f"the state file {path} is gone: something else removes files of the table; bring "
                "a copy of the file back, or read the topic again into another output directory"
            ) from error
        except PermissionError as error:
            raise no_right(path, "a file") from error
        except OSError as error:
            raise LedgerError(f"the state file {path} cannot be read: {error.strerror}") from error
        if crc != head.crc:
            file.close()
            raise LedgerError(
                f"the state file {path} is damaged: it has the CRC-32C {crc:#010x}, expected "
                f"{head.crc:#010x}; bring a copy of the file back, or read the topic again into "
                "another output directory"
            )
        return file
