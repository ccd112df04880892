"""Makes folders and files survive a loss of power, and keeps half of a file out of sight.

In: paths, texts. Out: nothing; the entries are on disk. Must not know: tables, ledgers.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder and its parents; each new one is synced in the folder that holds it."""
    for holder in make_unsynced(path):
        sync(holder)


def make_unsynced(path: Path) -> list[Path]:
    """Make a folder and its parents; the folders that must be synced so that they survive."""
    new = list(takewhile(lambda folder: not folder.exists(), (path, *path.parents)))
    if new:
        path.mkdir(parents=True, exist_ok=True)
    return [folder.parent for folder in reversed(new)]


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """A name of its own to write a file under, next to its place; nothing of that name stays."""
    made = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield made
    finally:
        made.unlink(missing_ok=True)


def write_whole(path: Path, text: str, *, first: bool = False) -> None:
    """Write a file in one step; it is on disk afterwards, in place of an earlier one.

    Raises:
        FileExistsError: with ``first``, there is a file already.
    """
    with beside(path) as made:
        made.write_text(text, encoding="utf-8")
        sync(made)
        if first:
            os.link(made, path)  # fails if another process was first
        else:
            made.replace(path)
    sync(path.parent)
