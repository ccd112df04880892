"""A Spark session as kohort needs it: a Java that is there, this Python, sockets that are fast.

What lives here: the builder of sessions for ``kohort pipeline``, ``kohort table``, tests and
benchmarks. In go a master and settings, out comes a ``SparkSession``. It must not know sources,
sinks or groups. A user who has a session of their own does not need this module.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from kohort.host.java import find_java, spark_java_home

DRIVER_JAVA_OPTIONS = "-Xss16m -XX:+UseParallelGC"
"""Spark's check of an error text in foreachBatch recurses deeply when a query is stopped; the
parallel collector takes 0.6 us of CPU a row less than G1 where two cores are all there are."""

WORKER_DAEMON = "kohort.spark.worker_daemon"

_DAEMONS_END_S = 5.0

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What stops a query is raised, as one sentence; its Java stack trace is for --conf
    # spark.log.level=ERROR.
    "spark.log.level": "FATAL",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Between JVM and Python worker a socket in the file system costs a fifth of loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's own prints a stack trace for each idle worker when the application ends.
    "spark.python.daemon.module": WORKER_DAEMON,
    # Data files are named by kohort's own sink; a job that only writes results needs no shuffle.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A value that cannot be cast becomes NULL: one malformed record must not stop a pipeline.
    "spark.sql.ansi.enabled": "false",
}

QUICK: Mapping[str, str] = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": ("-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    "spark.sql.shuffle.partitions": "1",
}
"""For tests and short commands: a session that starts quickly and computes slowly."""


def make_session(
    name: str, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the process's running session.

    Sets ``JAVA_HOME`` and ``PYSPARK_PYTHON`` in this process's environment, since Spark's scripts
    look there and would otherwise take any ``python3`` from ``PATH`` for their workers.

    Raises:
        ConfigError: no Java 17 or newer was found.
    """
    os.environ["JAVA_HOME"] = str(spark_java_home(find_java()))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # local-cluster would otherwise write a work folder into the installed package.
    os.environ.setdefault("SPARK_WORKER_DIR", str(_scratch()))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = {"spark.driver.extraJavaOptions": DRIVER_JAVA_OPTIONS, **DEFAULTS}
    builder = SparkSession.Builder().appName(name).master(master)
    for key, value in (chosen | dict(settings or {})).items():
        builder = builder.config(key, value)
    # Nothing broke with pandas 3; Spark 4.3 says on every import that something might.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    return builder.getOrCreate()


def stop_session(spark: SparkSession) -> None:
    """End a session of this process's own, its Python workers first.

    Those that planned the query run under Spark's own daemon, whatever the settings say, and wait
    for more. When Spark closes their sockets each prints a stack trace; a daemon that is told to
    end takes its workers along without a word.
    """
    mine = psutil.Process().children(recursive=True)
    daemons = [process for process in mine if _is_daemon(process)]
    for daemon in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            daemon.terminate()
    psutil.wait_procs(daemons, timeout=_DAEMONS_END_S)
    spark.stop()


def _is_daemon(process: psutil.Process) -> bool:
    """Whether it is a Python daemon of Spark's, or a worker forked from one."""
    try:
        return process.cmdline()[1:3] in [["-m", "pyspark.daemon"], ["-m", WORKER_DAEMON]]
    except psutil.Error:
        return False


def _scratch() -> Path:
    return Path(tempfile.gettempdir()) / f"kohort-spark-work-{os.getuid()}"
