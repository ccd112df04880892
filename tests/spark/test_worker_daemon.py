"""Idle workers when Spark ends: they print nothing."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.spark.worker_daemon import end_silently, run_task


def last_words(module: str, *, interrupted: bool = False) -> str:
    """The output of a daemon and its worker when the worker's socket closes before any task.

    With ``interrupted`` both get SIGINT before.
    """
    # The path of a Unix socket must be short, and pytest's folders have long paths.
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "PYTHON_UNIX_DOMAIN_ENABLED": "true",
            "PYTHON_WORKER_FACTORY_SOCK_DIR": folder,
            "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
            "SPARK_REUSE_WORKER": "1",
        }
        with subprocess.Popen(
            [sys.executable, "-m", module, "pyspark.worker"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as daemon:
            return conversation(daemon, interrupted=interrupted)


def conversation(daemon: subprocess.Popen[bytes], *, interrupted: bool) -> str:
    assert daemon.stdin is not None
    assert daemon.stdout is not None
    assert daemon.stderr is not None
    (length,) = struct.unpack(">i", daemon.stdout.read(4))
    place = daemon.stdout.read(length).decode()
    with socket.socket(socket.AF_UNIX) as spark:
        spark.connect(place)
        (worker,) = struct.unpack(">i", spark.recv(4, socket.MSG_WAITALL))
        waited_for = os.pidfd_open(worker)
        for process in (daemon.pid, worker) if interrupted else ():
            os.kill(process, signal.SIGINT)
    # The end of the daemon would kill the worker before it prints.
    assert select.select([waited_for], [], [], 120)[0], "the worker did not end"
    os.close(waited_for)
    daemon.stdin.close()
    return daemon.stderr.read().decode()


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [False, True])
def test_an_idle_worker_ends_without_output(interrupted: bool) -> None:
    assert last_words("kohort.spark.worker_daemon", interrupted=interrupted) == ""


@pytest.mark.slow
def test_the_imports_before_a_fork_start_no_thread_and_are_frozen() -> None:
    program = "import os; from kohort.spark.worker_daemon import import_for_tasks as load; load(); "
    program += "import gc, sys; frozen = gc.get_freeze_count(); left = len(gc.get_objects()); "
    program += "print(len(os.listdir('/proc/self/task')), frozen > 100 * left, *sys.modules)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    threads, frozen, *modules = done.stdout.split()
    assert (threads, frozen) == ("1", "True"), done.stderr
    assert {
        "pyarrow",
        "pandas",
        "kohort.spark.source.reading",
        "kohort.spark.tables.piece_files",
    } < {*modules}


KEEPS = """
import resource, time
from kohort.spark.worker_daemon import import_for_tasks
import_for_tasks()
import numpy, pyarrow
from kohort.fetch.memory import array
for _ in range(4):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    array(64 << 20, numpy.uint8).fill(1)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    time.sleep(0.1)  # the pool's own delay is 10 ms
    for _ in range(100):  # frees of any size give expired pages back
        array(1 << 20, numpy.uint8).fill(1)
print(pyarrow.default_memory_pool().backend_name, faults)
"""


@pytest.mark.slow
def test_memory_of_a_worker_stays_in_the_pool_of_arrow() -> None:
    """Pages that go back to the system between batches are cleared again: a seventh of the CPU."""
    done = subprocess.run(
        [sys.executable, "-c", KEEPS], capture_output=True, text=True, check=False
    )
    pool, faults = done.stdout.split()
    assert pool == "mimalloc"
    assert int(faults) < 10, done.stderr


# Spark's worker leaves its files of the socket to the end of the process.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_new_worker_with_a_socket_that_closes_before_the_answer_ends_without_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Seen under load: Spark ended while the worker began."""
    from pyspark.serializers import write_with_length

    from kohort.spark.worker_daemon import run_task

    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "secret")
    mine, spark = socket.socketpair()
    with mine:
        with spark, spark.makefile("wb") as out:
            write_with_length(b"secret", out)  # type: ignore[no-untyped-call]
        assert run_task(mine, False) != 0


BUSY = """
import os, signal, socket
from pyspark.serializers import write_with_length
from kohort.spark.worker_daemon import ignore_sigint, run_task

os.environ["PYTHON_WORKER_FACTORY_SECRET"] = "secret"
ignore_sigint()
mine, spark = socket.socketpair()
with spark, spark.makefile("wb") as out:
    write_with_length(b"another", out)
    out.flush()
    run_task(mine, False)
signal.raise_signal(signal.SIGINT)
print("lives")
"""


def test_a_worker_ignores_sigint_also_after_a_task() -> None:
    """Spark's worker sets a handler that prints a stack trace, and Spark uses workers again."""
    done = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("lives\n", "")


def test_an_idle_worker_of_spark_s_own_daemon_prints_a_stack_trace() -> None:
    """When Spark fixes this, the test fails, and ``worker_daemon`` can be removed."""
    assert "BrokenPipeError" in last_words("pyspark.daemon")


def test_a_worker_of_spark_s_own_daemon_is_told_to_end_silently(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Workers that plan a query printed ``BrokenPipeError`` a minute after it had begun."""
    program = ModuleType("__main__")
    program.__spec__ = ModuleSpec("pytest", None)
    monkeypatch.setitem(sys.modules, "__main__", program)
    end_silently()
    assert not hasattr(program, "worker")
    program.__spec__ = ModuleSpec("pyspark.daemon", None)
    end_silently()
    assert vars(program)["worker"] is run_task
