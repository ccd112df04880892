"""Spark's daemon of Python workers; idle workers end silently when Spark closes their sockets.

In: requests from Spark's JVM, which starts ``python -m kohort.spark.worker_daemon`` because of
``spark.python.daemon.module``. Out: worker processes. Must not know: sources, sinks, sessions,
modules that start threads, since workers are forked from this process.

An idle worker waits on its socket for the next task. When the application ends, the JVM closes that
socket. Spark's own worker then tries to report an interrupted task on the closed socket, and prints
a stack trace of ``BrokenPipeError``. The worker here first checks whether a task begins. The JVM
may also close the socket of a new worker before the worker answers; that worker ends silently, too.
"""

from __future__ import annotations

import signal
import socket

from pyspark import daemon

_CLOSED = 1
"""Any status but 0 ends the worker in the daemon's loop."""

_run_task = daemon.worker


def run_task(sock: socket.socket, authenticated: bool) -> int:
    """Wait for a task and run it, like ``pyspark.daemon.worker``; end if the socket is closed."""
    try:
        begun = sock.recv(1, socket.MSG_PEEK)
        # The task itself reports its errors to the JVM; these here are errors of the socket.
        return int(_run_task(sock, authenticated)) if begun else _CLOSED
    except ConnectionError:
        return _CLOSED


def main() -> None:
    """Run the daemon until Spark closes standard input."""
    # Some service managers send SIGINT to all processes. The application's main process ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The daemon's manager calls this in a forked child for every task.
    daemon.worker = run_task
    daemon.manager()


if __name__ == "__main__":
    main()
