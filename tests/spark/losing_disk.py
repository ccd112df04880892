"""A disk that loses unsynced bytes and unsynced entries of folders when the power is cut.

``fsync`` stands in for ``os.fsync`` and notes the state of a file or of a folder. ``lose_power``
makes the folder that the next start of the machine finds. Chance keeps or loses each change that
was not synced: a new entry may have none or half of its bytes, a removed one may be back.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from random import Random


class LosingDisk:
    """The disk below ``root``; all that is there at the beginning is on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._root_name = str(self._root)
        self._bytes: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._held: dict[int, int] = {}
        for path in [self._root, *self._root.rglob("*")]:
            self._note(str(path))

    def close(self) -> None:
        """Close the files that were held open."""
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def fsync(self, handle: int) -> None:
        """Note the file or the folder behind a handle."""
        path = os.readlink(f"/proc/self/fd/{handle}")
        if path == self._root_name or path.startswith(f"{self._root_name}/"):
            self._note(path)

    def lose_power(self, to: Path, random: Random) -> None:
        """Make the folder ``to``, which has what is left."""
        self._restore(self._root.stat().st_ino, self._root, to, random)

    def _note(self, path: str) -> None:
        number = self._hold(path, os.stat(path).st_ino)
        if os.path.isdir(path):
            with os.scandir(path) as entries:
                found = {each.name: self._hold(each.path, each.inode()) for each in entries}
            self._entries[number] = found
        else:
            self._bytes[number] = Path(path).read_bytes()

    def _hold(self, path: str, number: int) -> int:
        """The number of a file; while it is held open no other file gets the number."""
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY)
        return number

    def _restore(self, number: int, live: Path, to: Path, random: Random) -> None:
        held = self._held.get(number)
        if held is None or not stat.S_ISDIR(os.fstat(held).st_mode):
            there = live.read_bytes() if live.is_file() else b""
            to.write_bytes(self._bytes.get(number, there[: random.choice([0, len(there) // 2])]))
            return
        to.mkdir()
        found = dict(self._entries.get(number, {}))
        now = {each.name: each.stat().st_ino for each in live.iterdir()} if live.is_dir() else {}
        for name in sorted(found.keys() | now.keys()):
            if found.get(name) != now.get(name) and random.random() < 0.5:
                found.pop(name, None)
                found |= {name: now[name]} if name in now else {}
            if name in found:
                self._restore(found[name], live / name, to / name, random)
