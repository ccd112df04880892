"""Writes facts to a history file on a thread of its own.

In: facts with their instants, from any thread; accepting a fact is an append to a queue. Out: lines
in a file to which each life appends. Must not know: the meaning of facts, their observers. A disk
that fails ends the recording with one warning; nothing else depends on the recording.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from pathlib import Path
from typing import Final, TextIO

from kohort.model.errors import ConfigError
from kohort.model.history_record import AnyFact, Recorded
from kohort.model.instants import Instant
from kohort.storage.fact_files import Header, fact_line, next_life

LOG: Final = logging.getLogger(__name__)

WRITE_EVERY_S: Final = 0.05
MOST_WAITING: Final = 500_000
"""Most facts that wait for the disk. Later facts are dropped, and a warning tells their number."""


class FactRecorder:
    """Appends the facts of one process to one file.

    Args:
        path: made if absent; an earlier life's facts stay.
        source: the process's name, the same in all its lives.
        header: names the clock of the instants.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path, source: str, header: Header) -> None:
        self._path = path
        self._source = source
        self._waiting: deque[tuple[Instant, AnyFact]] = deque()
        self._sequence = 0
        self._dropped = 0
        self._closing = threading.Event()
        self._writing = threading.Lock()
        try:
            self.life = next_life(path)
            self._file: TextIO | None = path.open("a", encoding="utf-8")
            self._file.write(header.line() + "\n")
            self._file.flush()
        except OSError as error:
            raise ConfigError(f"cannot record to {path}: {error.strerror or error}") from error
        name = f"kohort-history-{source}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def record(self, fact: AnyFact, at: Instant) -> None:
        """Accept a fact; it reaches the file soon. Any thread may call this."""
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append((at, fact))

    def write(self) -> None:
        """Write all waiting facts now; they survive the death of the process."""
        with self._writing:
            self._write()

    def close(self) -> None:
        """Write all waiting facts and end. Closing twice is harmless."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(WRITE_EVERY_S):
            self.write()
        self.write()
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._dropped:
            LOG.warning(
                "%s: %d facts were dropped; the disk was too slow", self._path, self._dropped
            )

    def _write(self) -> None:
        lines = []
        while self._waiting:
            at, fact = self._waiting.popleft()
            self._sequence += 1
            recorded = Recorded(
                sequence=self._sequence,
                at=at,
                incarnation=self.life,
                source=self._source,
                fact=fact,
            )
            lines.append(fact_line(recorded) + "\n")
        if not lines or self._file is None:
            return
        try:
            self._file.writelines(lines)
            self._file.flush()
        except OSError as error:
            LOG.warning("recording to %s ends: %s", self._path, error.strerror or error)
            self._file = None
