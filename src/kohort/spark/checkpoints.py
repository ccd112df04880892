"""Gives an application its name and its checkpoint, and keeps other applications out.

In: the table's directory, perhaps a name. Out: a locked checkpoint. Must not know: Spark.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kohort.model.errors import FULL_DISK, ConfigError
from kohort.spark.tables.layout import CHECKPOINTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that this process has locked.

    Attributes:
        name: of the application.
        path: the folder that Spark writes.
        lock: the locked file.
        handle: the open file.
    """

    name: str
    path: Path
    lock: Path
    handle: int

    def is_held(self) -> bool:
        """Whether the lock keeps others out; False if the file was removed or replaced."""
        try:
            return os.path.samestat(os.fstat(self.handle), self.lock.stat())
        except FileNotFoundError:
            return False


@contextmanager
def locked_checkpoint(output: Path, name: str | None) -> Iterator[Checkpoint]:
    """The checkpoint of an application, locked while the application runs.

    Two queries on one checkpoint would each look like a restart of the other. If Spark has written
    no checkpoint, the end of the application leaves no lock behind.

    Raises:
        ConfigError: the name is not allowed, an application with this name runs, or the checkpoints
            cannot be written.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name):
        raise ConfigError(
            f"--name is {name!r}, expected at most 100 letters, digits, '.', '_' and '-'"
        )
    folder = output / CHECKPOINTS
    holders = (folder, folder.parent, output)
    new = [holder for holder in holders if not holder.exists()]
    candidates = [name] if name is not None else [f"application-{n}" for n in range(1, 1_000)]
    for candidate in candidates:
        checkpoint = _locked(folder, candidate)
        if checkpoint is None:
            continue
        try:
            yield checkpoint
        finally:
            if not checkpoint.path.exists() and checkpoint.is_held():
                checkpoint.lock.unlink()
                with suppress(OSError):  # a folder that others use is not empty
                    for made in new:
                        made.rmdir()
            os.close(checkpoint.handle)
        return
    raise ConfigError(
        f"an application called {candidates[0]} already runs on {output}: give this application "
        "another --name, or no name"
    )


def _locked(folder: Path, name: str) -> Checkpoint | None:
    """The checkpoint if no other process holds its lock."""
    lock = folder / f"{name}.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(
            f"cannot write {lock}, the lock of a checkpoint: {error.strerror}; "
            f"{_advice(error, folder)}"
        ) from error
    checkpoint = Checkpoint(name=name, path=folder / name, lock=lock, handle=handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    if checkpoint.is_held():
        return checkpoint
    os.close(handle)  # its former holder removed the file just before
    return _locked(folder, name)


def _advice(error: OSError, folder: Path) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"give this user the right to write {folder}"
    if error.errno in FULL_DISK:
        return "free some space on this disk"
    return "a table needs a folder on a disk that can be written: name another --output"
