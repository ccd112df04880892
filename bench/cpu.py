"""The CPU time of a process and of everything below it, by kind of process.

In: the command lines of processes. Out: seconds. Must not know: measurements. Linux only.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

COMPILER: Final = "compiler"
GARBAGE: Final = "garbage"
_THREADS: Final = {"CompilerThre": COMPILER, "GC Thread": GARBAGE, "VM Thread": GARBAGE}
"""A mark in the name of a thread of Java -> its kind."""


class CpuMeter:
    """CPU time of a process and of all its children, also of children that have ended.

    Args:
        kinds: a mark in a command line -> the kind of the process; the first match counts.
        java: the kind with threads that are told apart: those that compile and those that collect
            garbage have kinds of their own.
        pid: of the process; None for this one.
    """

    def __init__(self, kinds: Mapping[str, str], java: str = "", pid: int | None = None) -> None:
        self._root = psutil.Process(pid)
        self._kinds = kinds
        self._java = java
        self._used: dict[tuple[int, float, str], float] = {}
        self._threads: dict[tuple[int, int], tuple[str, float]] = {}

    def seconds(self) -> dict[str, float]:
        """CPU seconds up to now, by kind of process."""
        for process in [self._root, *self._root.children(recursive=True)]:
            try:
                times, line = process.cpu_times(), " ".join(process.cmdline())
                born = process.create_time()
            except psutil.NoSuchProcess:
                continue
            kind = next((k for mark, k in self._kinds.items() if mark in line), "other")
            apart = self._apart(process) if kind == self._java else {}
            own = times.user + times.system - sum(apart.values())
            for name, seconds in {kind: own, **apart}.items():
                self._used[process.pid, born, name] = seconds
        used: dict[str, float] = {}
        for (_, _, kind), seconds in self._used.items():
            used[kind] = used.get(kind, 0.0) + seconds
        return used

    def others(self) -> float:
        """CPU seconds of all other processes of the machine since it started."""
        times = psutil.cpu_times()
        return float(sum(times) - times.idle - times.iowait) - sum(self.seconds().values())

    def _apart(self, process: psutil.Process) -> dict[str, float]:
        # Java ends idle compiler threads: the last known time of each thread is kept.
        for thread in process.threads():
            try:
                name = Path(f"/proc/{process.pid}/task/{thread.id}/comm").read_text()
            except OSError:
                continue
            kind = next((k for mark, k in _THREADS.items() if mark in name), None)
            if kind is not None:
                used = thread.user_time + thread.system_time
                self._threads[process.pid, thread.id] = kind, used
        found: dict[str, float] = {}
        for (pid, _), (kind, seconds) in self._threads.items():
            if pid == process.pid:
                found[kind] = found.get(kind, 0.0) + seconds
        return found
