"""``python -m kohort.cli.demo.undertaker``: kills the demo's processes if the demo was killed.

What lives here: a loop over standard input. In come ids of sessions, each on a line; when the pipe
ends, whatever of them is left is killed. Only the demo holds the other end, so the pipe ends when
the demo does, however that came about. It must not know what the sessions run.
"""

from __future__ import annotations

import signal
import sys

import psutil

from kohort.cli.demo.processes import kill_session


def main() -> None:
    """Wait for the end, then bury."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    born: dict[int, float | None] = {}
    for line in sys.stdin:
        born[int(line)] = _born(int(line))
    for leader, then in born.items():
        # A number may have gone to somebody else, though never while its session lives.
        if _born(leader) in {then, None}:
            kill_session(leader)


def _born(pid: int) -> float | None:
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


if __name__ == "__main__":
    main()
