"""Processes of the demo, and a guard that leaves none of them behind, nor a temporary file.

In: commands. Out: trees of processes. A tree is a session, so that Spark's Java process and its
Python workers are frozen and killed together. Must not know: the story, Spark.

The guard is a process of its own (``python -m kohort.cli.demo.processes FOLDER``). It reads ids of
sessions from a pipe. Only the demo holds the other end, so the pipe ends when the demo ends, also
by SIGKILL. Then the guard kills the sessions and removes the folder.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Final, Self

import psutil

from kohort.host.java import temporary_files_of_spark

_POLL_S: Final = 0.02
_DIE_S: Final = 60.0


class Tree(subprocess.Popen[str]):
    """A process and its descendants.

    Args:
        command: program and arguments.
        log: takes standard error, and standard output unless it is piped.
        piped: standard output is a pipe in text mode.
        environ: the environment; None for the present one.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        piped: bool = False,
        environ: dict[str, str] | None = None,
    ) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            super().__init__(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else output,
                stderr=output,
                text=True,
                start_new_session=True,
                env=environ,
            )

    @property
    def output(self) -> IO[str]:
        """The pipe from standard output."""
        assert self.stdout is not None
        return self.stdout

    def freeze(self) -> None:
        """SIGSTOP all processes of the tree; returns when none of them runs."""
        _signal_session(self.pid, signal.SIGSTOP, psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        """SIGCONT all processes of the tree."""
        _send(_session(self.pid), signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL all processes of the tree; returns when none of them is left."""
        _signal_session(self.pid, signal.SIGKILL)
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
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])


class Guard:
    """Starts trees that end with this process. A context manager.

    Attributes:
        folder: for temporary files of the trees; is removed at the end.
    """

    def __init__(self) -> None:
        # A short path: Spark makes Unix sockets in this folder.
        self.folder = Path(tempfile.mkdtemp(prefix="kohort-demo-"))
        self._environ = {**os.environ, **temporary_files_of_spark(self.folder)}
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo.processes", str(self.folder)],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def start(self, command: Sequence[str], log: Path, *, piped: bool = False) -> Tree:
        """Start a tree that ends at the latest when this process does."""
        tree = Tree(command, log, piped=piped, environ=self._environ)
        assert self._process.stdin is not None
        self._process.stdin.write(f"{tree.pid}\n")
        self._process.stdin.flush()
        return tree


def _session(leader: int, but: str = psutil.STATUS_DEAD) -> list[psutil.Process]:
    """The running processes of a session that are not in this state."""
    found = []
    for process in psutil.process_iter(["status"]):
        if process.info["status"] not in {but, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == leader:
                    found.append(process)
    return found


def _signal_session(leader: int, number: signal.Signals, reached: str = psutil.STATUS_DEAD) -> None:
    """Signal until no process is left in another state: a process may fork meanwhile."""
    deadline = time.monotonic() + _DIE_S
    while time.monotonic() < deadline and (left := _session(leader, reached)):
        _send(left, number)
        time.sleep(_POLL_S)


def _send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _started_at(pid: int) -> float | None:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def main() -> None:
    """Guard: wait for the end of standard input, then kill and remove."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    started = {int(line): _started_at(int(line)) for line in sys.stdin}
    for leader, then in started.items():
        # The number may be reused, but not while a process of the session lives.
        if _started_at(leader) in {then, None}:
            _signal_session(leader, signal.SIGKILL)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
