"""Process trees: started as sessions of their own, frozen, killed or asked to end as wholes.

What lives here: the one place where signals are sent. A tree is everything in the session of
the process that was started, so that a Java process, its Python workers and whatever these forked
die together, even where they made process groups of their own. It must not know what they run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final, Self

import psutil

_POLL_S: Final = 0.02
_DIE_S: Final = 60.0


class Tree:
    """A process and what it started.

    Args:
        command: program and arguments.
        log: where standard error goes, and standard output unless it is piped.
        piped: standard input and output are pipes in text mode.
        environ: changes to the environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        piped: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as told:
            self._process: subprocess.Popen[str] = subprocess.Popen(
                list(command),
                stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else told,
                stderr=told,
                text=True,
                start_new_session=True,
                env={**os.environ, **(environ or {})},
            )
        self.pid = self._process.pid
        self.log = log

    @property
    def ended(self) -> int | None:
        """The exit status of the first process, or None while it runs."""
        return self._process.poll()

    @property
    def stdin(self) -> IO[str]:
        """The pipe to its standard input."""
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def stdout(self) -> IO[str]:
        """The pipe from its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout

    def freeze(self) -> None:
        """Stop every process of the tree where it stands; returns when none of them runs."""
        self._signal_all(signal.SIGSTOP, psutil.STATUS_STOPPED)

    def thaw(self) -> None:
        """Let them go on."""
        for process in _members(self.pid):
            _send(process, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL every process of the tree; returns when all are gone."""
        kill_session(self.pid, self._process.poll)
        self._process.wait()
        self._close_pipes()

    def end(self, patience_s: float) -> int:
        """SIGTERM the first process, give it so long, kill what is left; its exit status."""
        if self._process.poll() is None:
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.kill()
        return self._process.returncode

    def _signal_all(self, number: signal.Signals, reached: str) -> None:
        """Repeats until nobody is left to signal: a process may fork before it is reached."""
        deadline = time.monotonic() + _DIE_S
        while time.monotonic() < deadline:
            left = [
                p for p in _members(self.pid) if _status(p) not in {reached, psutil.STATUS_DEAD}
            ]
            if not left:
                return
            for process in left:
                _send(process, number)
            time.sleep(_POLL_S / 10)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Undertaker:
    """Sees to it that watched trees die when this process does, even by SIGKILL.

    A process of its own reads a pipe whose other end only this one holds, and kills what it was
    told of when the pipe ends. A context manager; leaving it kills what is left.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo.undertaker"],
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

    def watch(self, tree: Tree) -> Tree:
        """Have the tree killed when this process ends; returns it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{tree.pid}\n")
        self._process.stdin.flush()
        return tree


def kill_session(leader: int, reap: Callable[[], object] = lambda: None) -> None:
    """SIGKILL every process of a session; returns when all are gone.

    Args:
        leader: its id, which is that of the process that began it.
        reap: called now and then, to collect the leader's exit status.
    """
    deadline = time.monotonic() + _DIE_S
    while (members := _members(leader)) and time.monotonic() < deadline:
        for process in members:
            _send(process, signal.SIGKILL)
        reap()
        time.sleep(_POLL_S)


def tail(path: Path, lines: int = 12) -> str:
    """The last lines of a log, for a message about why something ended."""
    if not path.exists():
        return ""
    return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def _members(leader: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            session = os.getsid(process.pid)
        except (ProcessLookupError, PermissionError):
            continue
        if session == leader and _status(process) != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _status(process: psutil.Process) -> str:
    try:
        return str(process.status())
    except psutil.NoSuchProcess:
        return str(psutil.STATUS_DEAD)
