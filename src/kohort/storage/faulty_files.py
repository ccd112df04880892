"""A disk in memory that fails as disks do: for tests and for simulated worlds.

In: the operations of ``Files``, and what is to go wrong; out: the same operations, and after a
crash a disk that a new process finds. Two crashes:

- ``kill``: the process died. All that was written is there, and of a write that was under way
  any part.
- ``power_cut``: the machine died. What was synced is there; of what was not, each file keeps any
  part of any of its writes, and each directory the first few of its changes of names.

No randomness of its own: every choice is asked of ``choose(n)``, a number from 0 to ``n``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Choose = Callable[[int], int]
_PAGE = 512


@dataclass(slots=True, eq=False)
class _Inode:
    """One file's bytes, now and as of the last sync, and the changes since."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)
    """(position, bytes) written, or the size it was cut or extended to."""


@dataclass(slots=True, eq=False)
class _Directory:
    """Names, now and as of the last sync, and the changes since, in order."""

    names: dict[str, _Inode] = field(default_factory=dict)
    durable: dict[str, _Inode] = field(default_factory=dict)
    pending: list[tuple[str, _Inode | None]] = field(default_factory=list)


class UnsyncedLossFiles:
    """A disk. Directories themselves are durable at once; names in them are not."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Bytes that all files together may have; None for no bound. May be changed any time."""
        self.fail_sync: Callable[[str], bool] = lambda path: False
        """Whether the sync of this file or directory fails with EIO."""
        self.synced: list[str] = []
        """Path of every file and directory that was synced, in order."""
        self.reads: list[str] = []
        """Path of every file that was read, once a read."""
        self._directories: dict[str, _Directory] = {"/": _Directory()}
        self._locks: set[str] = set()
        self._boots = 0
        self._life = 0
        self._last_write: tuple[_Inode, int, bytes, bytes] | None = None

    # Crashes

    def kill(self, choose: Choose | None = None) -> None:
        """The process dies between two operations; with ``choose``, within the last write."""
        if self._last_write is not None and choose is not None:
            inode, position, before, written = self._last_write
            kept = choose(len(written))
            end = position + len(written)
            # Bytes of the write that did not arrive are as they were, or were never there.
            inode.data[position + kept : end] = before[kept:]
            if inode.pending:
                inode.pending[-1] = (position, written[:kept])
        self._end_of_life()

    def power_cut(self, choose: Choose) -> None:
        """The machine dies; of what was not synced, ``choose`` says what is there."""
        inodes: dict[int, _Inode] = {}
        for directory in self._directories.values():
            inodes |= {id(inode): inode for inode in directory.names.values()}
            inodes |= {id(inode): inode for inode in directory.durable.values()}
            inodes |= {id(inode): inode for _, inode in directory.pending if inode is not None}
            kept = choose(len(directory.pending))
            names = dict(directory.durable)
            for name, changed in directory.pending[:kept]:
                if changed is None:
                    names.pop(name, None)
                else:
                    names[name] = changed
            directory.names = names
            directory.durable = dict(names)
            directory.pending = []
        for inode in inodes.values():
            _lose(inode, choose)
        self._boots += 1
        self._end_of_life()

    def _end_of_life(self) -> None:
        self._locks.clear()
        self._life += 1
        self._last_write = None

    # Damage

    def damage(self, path: str, position: int, mask: int = 0x01) -> None:
        """Flip bits of a byte, durably."""
        inode = self._inode(path)
        inode.data[position] ^= mask
        _settle(inode)

    def cut(self, path: str, size: int) -> None:
        """Shorten a file, durably."""
        inode = self._inode(path)
        del inode.data[size:]
        _settle(inode)

    def content(self, path: str) -> bytes:
        """What is in a file now."""
        return bytes(self._inode(path).data)

    # Files

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """Open for reading and writing; FileNotFoundError unless there or ``create``."""
        directory, name = self._split(path)
        inode = directory.names.get(name)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            inode = _Inode()
            directory.names[name] = inode
            directory.pending.append((name, inode))
        return FaultyFile(self, path, inode, self._life)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        if path in self._directories:
            return True
        parent, _, name = path.rpartition("/")
        directory = self._directories.get(parent or "/")
        return directory is not None and name in directory.names

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        if path not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        below = [
            name.rpartition("/")[2]
            for name in self._directories
            if name != "/" and (name.rpartition("/")[0] or "/") == path
        ]
        return sorted([*self._directories[path].names, *below])

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; no error when it is there."""
        while path and path not in self._directories:
            self._directories[path] = _Directory()
            path = path.rpartition("/")[0]

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is not there."""
        directory, name = self._split(path)
        if directory.names.pop(name, None) is not None:
            directory.pending.append((name, None))

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error when it is not there."""
        if path in self._directories and self._directories[path].names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self._directories.pop(path, None)

    def replace(self, source: str, target: str) -> None:
        """Rename in one step, in place of what was at ``target``; both in one directory."""
        if source in self._directories:
            self._directories[target] = self._directories.pop(source)
            return
        directory, name = self._split(source)
        other, target_name = self._split(target)
        if directory is not other:
            raise OSError(errno.EXDEV, "renaming across directories", target)
        inode = directory.names.pop(name)
        directory.names[target_name] = inode
        # The new name comes before the old one goes: no crash loses both.
        directory.pending += [(target_name, inode), (name, None)]

    def sync_directory(self, path: str) -> None:
        """Return when names made, renamed and removed in ``path`` are on the disk."""
        if self.fail_sync(path):
            raise OSError(errno.EIO, "sync failed", path)
        directory = self._directories[path]
        directory.durable = dict(directory.names)
        directory.pending = []
        self.synced.append(path)

    def lock(self, path: str) -> FaultyLock:
        """Take the lock at ``path``; BlockingIOError when another life or object holds it."""
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", path)
        self.open(path, create=True)
        self._locks.add(path)
        return FaultyLock(self._locks, path)

    def boot_id(self) -> str:
        """Changes with every power cut."""
        return f"boot-{self._boots}"

    def _split(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        directory = self._directories.get(parent or "/")
        if directory is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", parent)
        return directory, name

    def _inode(self, path: str) -> _Inode:
        directory, name = self._split(path)
        return directory.names[name]

    # For open files

    def used(self) -> int:
        """Bytes in all files."""
        return sum(
            len(inode.data)
            for directory in self._directories.values()
            for inode in directory.names.values()
        )

    def write(self, inode: _Inode, position: int, data: bytes) -> None:
        """Write; when the disk is full, only as much as there is room for, and ENOSPC."""
        grown = max(0, position + len(data) - len(inode.data))
        room = grown if self.capacity is None else max(0, self.capacity - self.used())
        part = data if grown <= room else data[: len(data) - (grown - room)]
        if position > len(inode.data):
            inode.data.extend(bytes(position - len(inode.data)))
        before = bytes(inode.data[position : position + len(part)])
        inode.data[position : position + len(part)] = part
        inode.pending.append((position, part))
        self._last_write = (inode, position, before, part)
        if grown > room:
            raise OSError(errno.ENOSPC, "no space left on device")

    def resize(self, inode: _Inode, size: int) -> None:
        """Cut or extend with zeros."""
        if self.capacity is not None and size - len(inode.data) > self.capacity - self.used():
            raise OSError(errno.ENOSPC, "no space left on device")
        if size < len(inode.data):
            del inode.data[size:]
        else:
            inode.data.extend(bytes(size - len(inode.data)))
        inode.pending.append(size)
        self._last_write = None

    def sync(self, path: str, inode: _Inode) -> None:
        """All of the file is durable, or EIO and what was not is lost to later syncs as well."""
        if self.fail_sync(path):
            # As Linux does: the pages are taken for clean, and a second sync would succeed.
            inode.pending = []
            raise OSError(errno.EIO, "sync failed", path)
        _settle(inode)
        self.synced.append(path)

    def check_alive(self, life: int, path: str) -> None:
        """Descriptors die with their process."""
        if life != self._life:
            raise OSError(errno.EBADF, "this descriptor's process is dead", path)


class FaultyFile:
    """An open file on an ``UnsyncedLossFiles``."""

    def __init__(self, disk: UnsyncedLossFiles, path: str, inode: _Inode, life: int) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._life = life
        self._closed = False

    @property
    def path(self) -> str:
        """Where it was opened."""
        return self._path

    def _alive(self) -> _Inode:
        if self._closed:
            raise OSError(errno.EBADF, "closed", self._path)
        self._disk.check_alive(self._life, self._path)
        return self._inode

    def size(self) -> int:
        """Bytes in the file."""
        return len(self._alive().data)

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        self._disk.reads.append(self._path)
        return bytes(self._alive().data[position : position + size])

    def pwrite(self, parts: Sequence[bytes], position: int) -> None:
        """Write all of ``parts``; on OSError some of it may be there."""
        self._disk.write(self._alive(), position, b"".join(parts))

    def allocate(self, position: int, length: int) -> None:
        """Make room, with zeros where nothing is."""
        inode = self._alive()
        if position + length > len(inode.data):
            self._disk.resize(inode, position + length)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self._disk.resize(self._alive(), size)

    def sync(self) -> None:
        """Return when everything written before is on the disk."""
        self._disk.sync(self._path, self._alive())

    def close(self) -> None:
        """Give the file back."""
        self._closed = True


class FaultyLock:
    """A lock on an ``UnsyncedLossFiles``; the death of the process releases it."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        """Give it up."""
        self._locks.discard(self._path)


def _settle(inode: _Inode) -> None:
    inode.durable = bytes(inode.data)
    inode.pending = []


def _lose(inode: _Inode, choose: Choose) -> None:
    """Replace the content by the durable one and any part of what was written since."""
    data = bytearray(inode.durable)
    for change in inode.pending:
        if isinstance(change, int):
            if choose(1):
                del data[change:]
                data.extend(bytes(change - len(data)))
            continue
        position, written = change
        for start in range(0, len(written), _PAGE):
            if choose(1):
                page = written[start : start + _PAGE]
                at = position + start
                if at > len(data):
                    data.extend(bytes(at - len(data)))
                data[at : at + len(page)] = page
    inode.data = data
    _settle(inode)
