"""Spark's daemon of Python workers, with workers that end quietly when Spark hangs up.

What lives here: ``main``, run as ``python -m kohort.spark.worker_daemon`` by
``spark.python.daemon.module``. In goes what Spark's JVM tells its daemon, out come worker
processes. It must not know sources, sinks or sessions, nor import what starts threads: workers
are forked from it.

A worker that is kept for the next task waits on its socket. When the application ends, the JVM
closes that socket. Spark's own worker takes this for the beginning of a task that broke off, tries
to report that to nobody, and prints a stack trace of ``BrokenPipeError``, one for each idle worker.
Here the worker looks whether a task comes at all.
"""

from __future__ import annotations

import socket

from pyspark import daemon

_HUNG_UP = 1
"""Any status but 0 tells the daemon's loop that this worker is not to wait for another task."""

_run_task = daemon.worker


def run_task(sock: socket.socket, authenticated: bool) -> int:
    """Wait for a task and run it; what ``pyspark.daemon.worker`` does, unless Spark hung up."""
    try:
        begun = sock.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        begun = b""
    return int(_run_task(sock, authenticated)) if begun else _HUNG_UP


def main() -> None:
    """Be the daemon until Spark closes standard input."""
    # What the daemon's manager calls in a forked child for every task.
    daemon.worker = run_task
    daemon.manager()


if __name__ == "__main__":
    main()
