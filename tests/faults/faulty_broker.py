"""``kohort`` on a disk that fails on command: ``python faulty_broker.py CONTROL broker ...``.

While there is a file ``fail-sync`` in CONTROL, syncs end with EIO; while there is ``no-space``,
writes that make a file longer end with ENOSPC. Everything else is the real thing.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kohort.cli.main import main
from kohort.storage.files import RealFile

CONTROL = Path(sys.argv.pop(1))

real_sync, real_pwrite, real_allocate = RealFile.sync, RealFile.pwrite, RealFile.allocate


def sync(self: RealFile) -> None:
    if (CONTROL / "fail-sync").exists():
        raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
    real_sync(self)


def pwrite(self: RealFile, parts: Sequence[bytes], position: int) -> None:
    if (CONTROL / "no-space").exists():
        # As a full disk does: some of it arrives.
        whole = b"".join(parts)
        real_pwrite(self, [whole[: len(whole) // 2]], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
    real_pwrite(self, parts, position)


def allocate(self: RealFile, position: int, length: int) -> None:
    if (CONTROL / "no-space").exists():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
    real_allocate(self, position, length)


for failing in (sync, pwrite, allocate):
    setattr(RealFile, failing.__name__, failing)

if __name__ == "__main__":
    main()
