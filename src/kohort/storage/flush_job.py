"""The blocking part of making a log durable, cut out so that it can run in another thread.

In: open files and the content of small files beside them, as they were at one moment; out: done, or
the error. A job touches no state of the log; the log takes up its outcome with ``complete_flush``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.storage.files import File, Files, write_file
from kohort.storage.segment import Segment


@dataclass(slots=True, eq=False, kw_only=True)
class FlushJob:
    """Syncs of one log, taken at one moment; ``run`` in any thread, then ``complete_flush``."""

    files: Files
    to_sync: tuple[File, ...]
    directory: str | None
    artifacts: tuple[tuple[str, bytes], ...]
    end_offset: int
    sealed: tuple[Segment, ...]
    error: OSError | None = None

    def run(self) -> None:
        """Blocks for as long as the disk does. Never raises: the error is kept for the log."""
        try:
            for file in self.to_sync:
                file.sync()
            # Only now may index and snapshot say that what they describe is on the disk.
            if self.artifacts and self.directory is not None:
                self.files.sync_directory(self.directory)
            for path, content in self.artifacts:
                write_file(self.files, path, content)
            if self.directory is not None:
                self.files.sync_directory(self.directory)
        except OSError as error:
            self.error = error
