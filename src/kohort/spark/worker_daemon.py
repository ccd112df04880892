"""Spark's daemon of Python workers: workers start with their imports, and end silently.

In: requests from Spark's JVM, which starts ``python -m kohort.spark.worker_daemon`` because of
``spark.python.daemon.module``. Out: worker processes. Must not know: groups, ledgers, sessions.

The daemon imports what the tasks of a pipeline need before it forks the first worker. Spark's own
daemon imports nothing, because numpy and pyarrow start threads, and a fork copies no threads. Here
both are told to start none (ADR 0065). ``bench/worker_start.py`` measures what this saves.
The imported objects are frozen: the collections of garbage in workers, one after each task, skip
them, and the workers go on sharing their memory with the daemon (ADR 0097).

An idle worker waits on its socket for the next task. When the application ends, the JVM closes that
socket. Spark's own worker then tries to report an interrupted task on the closed socket, and prints
a stack trace of ``BrokenPipeError``. The worker here first checks whether a task begins. The JVM
may also close the socket of a new worker before the worker answers; that worker ends silently, too.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import socket
import sys
from typing import Final

from pyspark import daemon

from kohort.host.log_lines import set_up_from_environment

_CLOSED = 1
"""Any status but 0 ends the worker in the daemon's loop."""

_VARIABLES: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # Arrow's pool gives no freed page back to the system, which would clear it again (ADR 0103).
    "MIMALLOC_PURGE_DELAY": "-1",
}
"""Variables that numpy and pyarrow read when they are imported: no threads, kept memory."""

_IMPORTED: Final = (
    "pandas",
    "pyspark.worker",
    "kohort.spark.source.data_source",
    "kohort.spark.source.reading",
    "kohort.spark.plain.reading",
    # The first lookup of a broker's name imports this.
    "encodings.idna",
)

_run_task = daemon.worker


def run_task(sock: socket.socket, authenticated: bool) -> int:
    """Wait for a task and run it, like ``pyspark.daemon.worker``; end if the socket is closed."""
    try:
        begun = sock.recv(1, socket.MSG_PEEK)
        # The task itself reports its errors to the JVM; these here are errors of the socket.
        return int(_run_task(sock, authenticated)) if begun else _CLOSED
    except ConnectionError:
        return _CLOSED


def end_silently() -> None:
    """Let a worker of Spark's own daemon that runs this code end without output, too.

    Spark plans queries in workers of its own daemon, whatever the settings say.
    """
    program = sys.modules["__main__"]
    if getattr(program.__spec__, "name", None) == daemon.__name__:
        vars(program)["worker"] = run_task


def import_for_tasks() -> None:
    """Import the modules of read and write tasks; no thread is started."""
    for name, value in _VARIABLES.items():
        os.environ.setdefault(name, value)
    for module in _IMPORTED:
        importlib.import_module(module)
    columns = importlib.import_module("kohort.fetch.columns")
    columns.load()
    with contextlib.suppress(ImportError):  # needs numba
        importlib.import_module("kohort.spark.tables.crc_kernel")
    gc.collect()
    gc.freeze()


def ignore_sigint() -> None:
    """Ignore SIGINT in this process and in its forks.

    Some service managers send it to all processes. The application's main process ends them.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Spark's worker restores this handler for each task.
    vars(signal)["default_int_handler"] = signal.SIG_IGN


def main() -> None:
    """Run the daemon until Spark closes standard input."""
    ignore_sigint()
    set_up_from_environment()
    import_for_tasks()
    # The daemon's manager calls this in a forked child for every task.
    daemon.worker = run_task
    daemon.manager()


if __name__ == "__main__":
    main()
