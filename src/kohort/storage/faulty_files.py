"""A disk in memory that fails as disks do, for tests and for simulated worlds.

In: the operations of ``Files``, and the faults to make. Out: the same operations, and after a crash
the disk that a new process finds. Must not know: logs, random sources: the caller's ``choose(n)``
makes every choice and returns a number from 0 to ``n``. There are two kinds of crash:

- ``kill``: the process dies. All earlier writes are kept, and any part of the last write.
- ``power_cut``: the machine dies. Synced data is kept. A file keeps any part of any unsynced write.
  A directory keeps the first few of its unsynced changes of names; a lost name of a directory
  loses all files below it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

Choose = Callable[[int], int]
_PAGE = 512


@dataclass(slots=True, eq=False)
class _Inode:
    """A file's bytes now, its bytes at the last sync, and the changes since."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)
    """(position, bytes) of a write, or the new size after a cut or an extension."""


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory's names now, its names at the last sync, and the changes since, in order."""

    names: dict[str, _Inode | _Directory] = field(default_factory=dict)
    durable: dict[str, _Inode | _Directory] = field(default_factory=dict)
    pending: list[tuple[str, _Inode | _Directory | None]] = field(default_factory=list)

    def put(self, name: str, node: _Inode | _Directory) -> None:
        """Give a file or a directory a name."""
        self.names[name] = node
        self.pending.append((name, node))

    def drop(self, name: str) -> None:
        """Remove a name."""
        del self.names[name]
        self.pending.append((name, None))

    def inodes(self) -> Iterator[_Inode]:
        """All files here and below."""
        for node in self.names.values():
            if isinstance(node, _Directory):
                yield from node.inodes()
            else:
                yield node


class UnsyncedLossFiles:
    """The disk; it starts with an empty root directory."""

    def __init__(self, *, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Limit for the bytes of all files together; None for no limit. May change any time."""
        self.fail_sync: Callable[[str], bool] = lambda path: False
        """Whether the sync of this file or directory fails with EIO."""
        self.synced: list[str] = []
        """Path of every file and directory that was synced, in order."""
        self.reads: list[str] = []
        """Path of a file for each read, in order."""
        self._root = _Directory()
        self._locks: set[str] = set()
        self._boots = 0
        self._life = 0
        self._last_write: tuple[_Inode, int, bytes, bytes] | None = None

    # Crashes

    def kill(self, choose: Choose | None = None) -> None:
        """The process dies after the last operation; with ``choose``, during the last write."""
        if self._last_write is not None and choose is not None:
            inode, position, before, written = self._last_write
            kept = choose(len(written))
            end = position + len(written)
            # The bytes that did not arrive keep their old values, or were never there.
            inode.data[position + kept : end] = before[kept:]
            if inode.pending:
                inode.pending[-1] = (position, written[:kept])
        self._end_of_life()

    def power_cut(self, choose: Choose) -> None:
        """The machine dies; ``choose`` decides which unsynced changes are kept."""
        _lose_names(self._root, choose)
        for inode in {id(inode): inode for inode in self._root.inodes()}.values():
            _lose(inode, choose)
        self._boots += 1
        self._end_of_life()

    def _end_of_life(self) -> None:
        self._locks.clear()
        self._life += 1
        self._last_write = None

    def synced_content(self, path: str) -> bytes:
        """The bytes of a file that survive every power cut; none if its name would not survive."""
        node: _Inode | _Directory | None = self._root
        for name in path.split("/")[1:]:
            node = node.durable.get(name) if isinstance(node, _Directory) else None
        return node.durable if isinstance(node, _Inode) else b""

    # Files

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """Open for reading and writing; FileNotFoundError unless there or ``create``."""
        directory, name = self._split(path)
        if name not in directory.names:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            directory.put(name, _Inode())
        return FaultyFile(self, path, self._inode(path), self._life)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there."""
        return self._node(path) is not None

    def list_directory(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        """Make a directory and those above it; no error when it is there."""
        directory = self._root
        for name in path.split("/")[1:]:
            node = directory.names.get(name)
            if node is None:
                node = _Directory()
                directory.put(name, node)
            if not isinstance(node, _Directory):
                raise FileExistsError(errno.EEXIST, "a file has this name", path)
            directory = node

    def remove(self, path: str) -> None:
        """Remove a file; no error when it is not there."""
        directory, name = self._split(path)
        if name in directory.names:
            directory.drop(name)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory; no error when it is not there."""
        if not self.exists(path):
            return
        if self._directory(path).names:
            raise OSError(errno.ENOTEMPTY, "directory not empty", path)
        self.remove(path)

    def replace(self, source: str, target: str) -> None:
        """Rename in one step; an existing ``target`` is replaced. Both are in one directory."""
        directory, name = self._split(source)
        other, target_name = self._split(target)
        if directory is not other:
            raise OSError(errno.EXDEV, "renaming across directories", target)
        # In this order no crash loses both names.
        directory.put(target_name, directory.names[name])
        directory.drop(name)

    def sync_directory(self, path: str) -> None:
        """Return when names made, renamed and removed in ``path`` are on the disk."""
        if self.fail_sync(path):
            raise OSError(errno.EIO, "sync failed", path)
        directory = self._directory(path)
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

    def _node(self, path: str) -> _Inode | _Directory | None:
        node: _Inode | _Directory | None = self._root
        for name in path.strip("/").split("/") if path != "/" else ():
            node = node.names.get(name) if isinstance(node, _Directory) else None
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if not isinstance(node, _Directory):
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return node

    def _split(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        return self._directory(parent or "/"), name

    def _inode(self, path: str) -> _Inode:
        node = self._node(path)
        if not isinstance(node, _Inode):
            raise IsADirectoryError(errno.EISDIR, "not a file", path)
        return node

    # For open files

    def used(self) -> int:
        """Bytes in all files."""
        return sum(len(inode.data) for inode in self._root.inodes())

    def write(self, inode: _Inode, position: int, data: bytes) -> None:
        """Write; on a full disk as much as there is room for, then ENOSPC."""
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
        """Make the whole file durable; after EIO no later sync makes its earlier writes durable."""
        if self.fail_sync(path):
            # Like Linux, which marks the pages as clean: a second sync would succeed.
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
        self.path = path
        self._inode = inode
        self._life = life
        self._closed = False

    def _alive(self) -> _Inode:
        if self._closed:
            raise OSError(errno.EBADF, "closed", self.path)
        self._disk.check_alive(self._life, self.path)
        return self._inode

    def size(self) -> int:
        """Bytes in the file."""
        return len(self._alive().data)

    def pread(self, size: int, position: int) -> bytes:
        """Up to ``size`` bytes at ``position``; fewer only at the end of the file."""
        self._disk.reads.append(self.path)
        return bytes(self._alive().data[position : position + size])

    def pwrite(self, parts: Sequence[bytes], position: int) -> None:
        """Write all of ``parts``; after an OSError some bytes may be written."""
        self._disk.write(self._alive(), position, b"".join(parts))

    def allocate(self, position: int, length: int) -> None:
        """Extend the file with zeros if it is shorter than that."""
        inode = self._alive()
        if position + length > len(inode.data):
            self._disk.resize(inode, position + length)

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes."""
        self._disk.resize(self._alive(), size)

    def sync(self) -> None:
        """Return when all earlier writes are on the disk."""
        self._disk.sync(self.path, self._alive())

    def close(self) -> None:
        """Close the file."""
        self._closed = True


class FaultyLock:
    """A lock on an ``UnsyncedLossFiles``; the death of the process releases it."""

    def __init__(self, locks: set[str], path: str) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._locks.discard(self._path)


def _settle(inode: _Inode) -> None:
    inode.durable = bytes(inode.data)
    inode.pending = []


def _lose_names(directory: _Directory, choose: Choose) -> None:
    """Keep the durable names and the first few of the later changes, here and below."""
    names = dict(directory.durable)
    for name, changed in directory.pending[: choose(len(directory.pending))]:
        if changed is None:
            names.pop(name, None)
        else:
            names[name] = changed
    directory.names = names
    directory.durable = dict(names)
    directory.pending = []
    for node in names.values():
        if isinstance(node, _Directory):
            _lose_names(node, choose)


def _lose(inode: _Inode, choose: Choose) -> None:
    """Keep the durable bytes and any part of the later writes."""
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
