"""Processes of the demo, and a guard that leaves none of them behind, nor a temporary file.

In: commands. Out: trees of processes. All processes of a tree have its mark in their environment,
so that Spark's Java process and its Python workers are killed together. Must not know: the story.

The guard is a process of its own (``python -m kohort.cli.demo.processes FOLDER``). It reads a pipe,
and only the demo holds the other end. So the pipe ends when the demo ends, also by SIGKILL. Then
the guard kills all trees and removes the folder.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import psutil

from kohort.host.java import temporary_files_of_spark
from kohort.host.last_lines import last_lines

_MARK: Final = "KOHORT_DEMO_TREE"
_POLL_S: Final = 0.02
_DIE_S: Final = 60.0


class Tree(subprocess.Popen[str]):
    """A process and its descendants; ``Guard.start`` makes it.

    Args:
        command: program and arguments.
        log: takes standard error, and standard output unless that is piped.
        piped: standard output is a pipe.
        environ: the environment, with the mark.
    """

    def __init__(
        self, command: Sequence[str], log: Path, *, piped: bool, environ: dict[str, str]
    ) -> None:
        self.log = log
        self._mark = environ[_MARK]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            super().__init__(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else output,
                stderr=output,
                text=True,
                start_new_session=True,  # a Ctrl-C ends the demo, which ends its trees in order
                env=environ,
            )

    def kill(self) -> None:
        """SIGKILL all processes of the tree; returns when none of them is left."""
        _kill_marked(self._mark)
        self.wait()
        if self.stdout is not None:
            self.stdout.close()

    def end(self, patience_s: float) -> int:
        """SIGTERM the first process, kill the tree after this time; returns the exit status."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(patience_s)
        self.kill()
        return self.returncode

    def tail(self) -> str:
        """The last lines of the log."""
        return last_lines(self.log)


class Guard:
    """Starts trees that end with this process. A context manager.

    Attributes:
        folder: for temporary files of the trees; is removed at the end.
    """

    def __init__(self) -> None:
        # A short path: Spark makes Unix sockets in this folder.
        self.folder = Path(tempfile.mkdtemp(prefix="kohort-demo-"))
        self._numbers = itertools.count()
        command = [sys.executable, "-m", "kohort.cli.demo.processes", str(self.folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.communicate()

    def start(self, command: Sequence[str], log: Path, *, piped: bool = False) -> Tree:
        """Start a tree that ends at the latest when this process does."""
        mark = {_MARK: f"{self.folder}/{next(self._numbers)}/"}
        environ = {**os.environ, **temporary_files_of_spark(self.folder), **mark}
        return Tree(command, log, piped=piped, environ=environ)


def _kill_marked(mark: str) -> None:
    """SIGKILL until no process has a mark with this prefix: a process may fork meanwhile."""
    deadline = time.monotonic() + _DIE_S
    while time.monotonic() < deadline and (left := _marked(mark)):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        time.sleep(_POLL_S)


def _marked(mark: str) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get(_MARK, "").startswith(mark)
    ]


def main() -> None:
    """Guard: wait for the end of standard input, then kill and remove."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.read()
    _kill_marked(f"{sys.argv[1]}/")
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
