"""Makes folders and files survive a loss of power.

In: paths. Out: nothing; the entries are on disk. Must not know: tables, ledgers.
"""

from __future__ import annotations

import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder and its parents; each new one is synced in the folder that holds it."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(new):
        sync(folder.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
