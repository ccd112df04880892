"""Renames directories of deleted topics at once, and removes them later.

In: partition directories of deleted topics. Out: directories under other names, and the removal of
their files from any thread. Must not know: topics, logs. Removing the files of thousands of
partitions takes seconds; renaming a directory takes microseconds and frees its name. The other name
does not contain the topic's name, which may be as long as a file name can be.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from kohort.storage.files import Files

_ASIDE: Final = re.compile(r"\d+\.(\d+)-delete")


class Leftovers:
    """The directories of deleted topics in one data directory.

    Args:
        files: the disk.
        path: the data directory.
    """

    __slots__ = ("_files", "_leaving", "_made", "_path", "_removable")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._leaving: deque[str] = deque()
        found = [match for name in files.list_directory(path) if (match := _ASIDE.fullmatch(name))]
        self._removable = [f"{path}/{match[0]}" for match in found]
        self._made = max((int(match[1]) for match in found), default=0)

    def leave(self, directories: Iterable[str]) -> None:
        """Mark these directories for removal; those that do not exist are skipped."""
        self._leaving.extend(directories)

    def put_aside(self, most: int) -> bool:
        """Rename up to ``most`` directories; True when all marked directories are renamed.

        Raises:
            OSError: the disk.
        """
        for _ in range(min(most, len(self._leaving))):
            directory = self._leaving[0]
            if self._files.exists(directory):
                self._made += 1
                aside = f"{self._path}/0.{self._made}-delete"
                self._files.replace(directory, aside)
                self._removable.append(aside)
            self._leaving.popleft()
        return not self._leaving

    def take_removable(self) -> list[str]:
        """Renamed directories, once each; the caller removes them."""
        taken, self._removable = self._removable, []
        return taken


def remove_directories(
    files: Files, directories: Iterable[str], cancelled: Callable[[], bool]
) -> None:
    """Remove directories with their files until cancelled; the next start removes the rest.

    Raises:
        OSError: the disk.
    """
    for directory in directories:
        if cancelled():
            return
        for name in files.list_directory(directory):
            files.remove(f"{directory}/{name}")
        files.remove_directory(directory)
