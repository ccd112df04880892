"""Makes folders and files survive a loss of power.

In: paths. Out: nothing; the entries are on disk. Must not know: tables, ledgers.
"""

from __future__ import annotations

import os
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
