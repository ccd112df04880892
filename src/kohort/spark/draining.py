"""Lets the group take all partitions of an application before the application leaves.

In: the wish of the application's main process. Out: the end of the drain, or of the patience. Must
not know: the group, Spark.

The member lives in the source, in a process that Spark starts and ends. The main process asks
through a file beside the checkpoint, and the source removes the file when the drain is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SUFFIX: Final = ".drain"
"""Suffix of a checkpoint's name in the name of its drain file."""


@dataclass(frozen=True, slots=True)
class DrainFile:
    """Exists from the request until everything is given away; not empty if that is impossible."""

    path: Path

    def ask(self) -> None:
        """Ask the source to drain its member."""
        self.path.write_text("")

    def exists(self) -> bool:
        """Whether a drain was asked for, and not everything is given away."""
        return self.path.exists()

    def refused(self) -> bool:
        """Whether the group's leader ignores drains."""
        try:
            return self.path.read_text() != ""
        except FileNotFoundError:
            return False

    def refuse(self) -> None:
        """Tell the main process that the group's leader ignores drains."""
        self.path.write_text("the group's leader ignores drains\n")

    def clear(self) -> None:
        """Everything is given away, or the file is from an earlier process."""
        self.path.unlink(missing_ok=True)


@dataclass(slots=True, kw_only=True)
class Draining:
    """The main process's side of one drain.

    Attributes:
        wanted: set when the application shall drain and stop.
        file: tells the source.
        timeout_s: longest wait for the end of the drain.
        clock: a monotonic clock, in seconds.
        drained: whether the source has given everything away.
    """

    wanted: threading.Event
    file: DrainFile
    timeout_s: float
    clock: Callable[[], float] = time.monotonic
    drained: bool = False
    _give_up: float | None = None

    def over(self) -> bool:
        """Whether the application shall stop: it is drained, or the time is over."""
        if not self.wanted.is_set():
            return False
        if self._give_up is None:
            self._give_up = self.clock() + self.timeout_s
            self.file.ask()
        self.drained = not self.file.exists()
        return self.drained or self.file.refused() or self.clock() >= self._give_up
