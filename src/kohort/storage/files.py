"""The file operations that this room needs, and the real disk.

In: paths and bytes. Out: bytes, or ``OSError`` as the system raises it. Must not know: logs. Tests
and simulated worlds implement the same Protocols (``faulty_files``). Every read and write names its
position, so that no write depends on an earlier one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

from kohort.storage.errors import CorruptLog

T = TypeVar("T")


class File(Protocol):
    """One open file."""

    @property
    def path(self) -> str:
        """The path under which it was opened."""

    def size(self) -> int:
        """Bytes in the file, preallocated bytes included."""

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer only at the end of the file."""

    def pwrite(self, parts: Sequence[bytes], position: int) -> None:
        """Write all of ``parts`` in order; after an OSError some bytes may be written."""

    def allocate(self, position: int, length: int) -> None:
        """Extend the file to ``position + length`` with zeros if it is shorter."""

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""

    def sync(self) -> None:
        """Return when all earlier writes are on the disk; any thread may call it."""

    def close(self) -> None:
        """Close the file; waits for a ``sync`` in another thread, may be called twice."""


class Lock(Protocol):
    """An exclusive lock that is held until released or until the process dies."""

    def release(self) -> None:
        """Release the lock; may be called twice."""


class Files(Protocol):
    """A tree of files. Paths are absolute strings; errors are ``OSError``."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless there or ``create``."""

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; no error when it is there."""

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is not there."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error when it is not there."""

    def replace(self, source: str, target: str) -> None:
        """Rename in one step; an existing ``target`` is replaced."""

    def sync_directory(self, path: str) -> None:
        """Return when all new, renamed and removed names in ``path`` are on the disk."""

    def lock(self, path: str) -> Lock:
        """Take the lock at ``path``; BlockingIOError when another process holds it."""

    def boot_id(self) -> str:
        """A text that changes when the machine boots; without a boot a kill loses no written data.

        Empty when the system has no such text; unsynced data then counts as lost.
        """


class RealFile:
    """A file descriptor."""

    __slots__ = ("_fd", "_lock", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd
        # Without the lock, a sync in another thread could hit a new file with the same number.
        self._lock = threading.Lock()

    def size(self) -> int:
        """Bytes in the file, preallocated bytes included."""
        return os.fstat(self._fd).st_size

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = os.pread(self._fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, parts: Sequence[bytes], position: int) -> None:
        """Write all of ``parts`` in order; after an OSError some bytes may be written."""
        written = os.pwritev(self._fd, parts, position)
        if written == sum(map(len, parts)):
            return
        rest = memoryview(b"".join(parts))
        while written < len(rest):
            written += os.pwrite(self._fd, rest[written:], position + written)

    def allocate(self, position: int, length: int) -> None:
        """Extend the file to ``position + length`` with zeros if it is shorter."""
        # Written zeros: a sync of space from posix_fallocate takes twice as long (ADR 0008).
        size = self.size()
        if position + length > size:
            self.pwrite((bytes(position + length - size),), size)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Return when all earlier writes are on the disk; any thread may call it."""
        with self._lock:
            # macOS has no fdatasync, and its fsync does not wait for the disk's cache either
            # (docs).
            getattr(os, "fdatasync", os.fsync)(self._fd)

    def close(self) -> None:
        """Close the file; waits for a ``sync`` in another thread, may be called twice."""
        with self._lock:
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)


class RealLock:
    """An advisory lock of the system, on an open file."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock; may be called twice."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFiles:
    """The machine's file system."""

    __slots__ = ()
    _file: ClassVar[type[RealFile]] = RealFile

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing; FileNotFoundError unless there or ``create``."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return self._file(path, os.open(path, flags, 0o644))

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return os.path.exists(path)

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; no error when it is there."""
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error when it is not there."""
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(path)

    def replace(self, source: str, target: str) -> None:
        """Rename in one step; an existing ``target`` is replaced."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Return when all new, renamed and removed names in ``path`` are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        """Take the lock at ``path``; BlockingIOError when another process holds it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return RealLock(fd)

    def boot_id(self) -> str:
        """The kernel's own name for this boot; empty where there is none (macOS)."""
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""


class _UnsyncedFile(RealFile):
    """A file descriptor; written bytes reach the disk when the system chooses."""

    __slots__ = ()

    def sync(self) -> None:
        """Return at once."""


class TemporaryFiles(RealFiles):
    """The machine's file system, for files that nobody reads after this process: no syncs."""

    __slots__ = ()
    _file: ClassVar[type[RealFile]] = _UnsyncedFile

    def sync_directory(self, path: str) -> None:
        """Return at once."""


def make_durable_directory(files: Files, path: str) -> None:
    """Make a directory and those above it, and return when all of them are on the disk.

    An earlier process may have made some of them and died before it synced their parents, so all
    directories up to the root are synced.
    """
    files.make_directory(path)
    while path:
        path = path.rpartition("/")[0]
        try:
            files.sync_directory(path or "/")
        except OSError as error:
            # No process of ours made a directory inside a parent that it may not open or change.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS):
                raise


def read_file(files: Files, path: str) -> bytes | None:
    """The whole content of a small file, or None when the file does not exist."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def read_json(files: Files, path: str, read: Callable[[Any], T]) -> T | None:
    """The value that ``read`` makes of a small JSON file; None when the file does not exist.

    Raises:
        CorruptLog: the file is damaged.
    """
    content = read_file(files, path)
    if content is None:
        return None
    try:
        return read(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLog(f"{path} is damaged ({type(error).__name__}); restore it") from error


def write_file(files: Files, path: str, content: bytes) -> None:
    """Replace a file's content in one step: a crash leaves the old or the new content.

    The caller syncs the directory, after which the new content is durable.
    """
    temporary = path + ".tmp"
    file = files.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite([content], 0)
        file.sync()
    finally:
        file.close()
    files.replace(temporary, path)


def replace_durably(files: Files, directory: str, name: str, text: str) -> None:
    """Give a small file a new content in one step; durable on return."""
    write_file(files, f"{directory}/{name}", text.encode())
    files.sync_directory(directory)
