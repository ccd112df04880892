"""The blocking part of a flush, which can run in another thread.

In: open files and the content of small files beside them, as of one moment. Out: success, or the
error. Must not know: the state of the log, which ``complete_flush`` changes afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.storage.files import File, Files, write_file
from kohort.storage.segment import Segment


@dataclass(slots=True, eq=False, kw_only=True)
class FlushJob:
    """The syncs of one log for one moment; ``run`` in any thread, then ``complete_flush``."""

    files: Files
    to_sync: tuple[File, ...]
    directory: str | None
    artifacts: tuple[tuple[str, bytes], ...]
    end_offset: int
    sealed: tuple[Segment, ...]
    error: OSError | None = None

    def run(self) -> None:
        """Sync, however long the disk takes.

        Never raises: ``error`` keeps the error for the log.
        """
        try:
            for file in self.to_sync:
                file.sync()
            # Index and snapshot may be written only after the data that they describe is on the
            # disk.
            if self.artifacts and self.directory is not None:
                self.files.sync_directory(self.directory)
            for path, content in self.artifacts:
                write_file(self.files, path, content)
            if self.directory is not None:
                self.files.sync_directory(self.directory)
        except OSError as error:
            self.error = error
