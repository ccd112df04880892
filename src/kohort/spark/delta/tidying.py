"""Compacts a Delta table by itself, in a thread of an application that writes it.

In: the numbers of committed files. Out: compactions. Must not know: Spark, groups, batches.

The cost of a commit grows with the files of the table: 8 ms of CPU time with 1,000 files, 0.3 s
with 100,000. One application at a time compacts a table; the others see its lock and go on.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from pathlib import Path
from typing import Final

from kohort.spark.delta.maintenance import Interrupted, compact, vacuum
from kohort.spark.ledgers.ledger import LedgerError

LOG: Final = logging.getLogger(__name__)

FILES: Final = 400
"""An application compacts the table after it has committed this many files."""

_LOCK: Final = Path("_kohort") / "compaction.lock"
_PATIENCE_S: Final = 30.0


class DeltaTidying:
    """The compactions of one application."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._files = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def added(self, files: int) -> None:
        """Files were committed; begin a compaction if there are enough."""
        self._files += files
        if self._files < FILES or (self._thread is not None and self._thread.is_alive()):
            return
        self._files = 0
        self._thread = threading.Thread(target=self._tidy, name="kohort-compaction", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End a running compaction; the files that it has not committed are removed."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_PATIENCE_S)

    def _tidy(self) -> None:
        handle = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            done = compact(self._directory, stopped=self._stop.is_set)
            removed = vacuum(self._directory)
            LOG.info(
                "%s: %d files replace %d, %d old ones were removed",
                self._directory, done.added, done.removed, len(removed),
            )  # fmt: skip
        except BlockingIOError:
            LOG.debug("another application compacts %s", self._directory)
        except Interrupted:
            LOG.debug("the compaction of %s was ended", self._directory)
        except (LedgerError, OSError) as error:
            LOG.warning("%s was not compacted; rows and positions are as before: %s",
                        self._directory, error)  # fmt: skip
        finally:
            os.close(handle)
