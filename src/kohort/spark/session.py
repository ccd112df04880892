"""Starts and stops Spark sessions for kohort's commands, tests and benchmarks.

In: a master and settings. Out: a ``SparkSession`` on an installed Java and this Python. Must not
know: sources, sinks, groups. Users with a Spark session of their own do not need this module.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext, java_gateway
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from kohort.host.java import find_java, spark_home, spark_java_home
from kohort.model.errors import ConfigError
from kohort.spark.failures import first_cause

T = TypeVar("T")

DRIVER_JAVA_OPTIONS = "-Xss16m -XX:+UseParallelGC"
"""Spark's check of an error text in foreachBatch recurses deeply when a query is stopped. On two
cores the parallel collector takes 0.6 us of CPU a row less than G1."""

CHECKPOINT_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
WORKER_DAEMON = "kohort.spark.worker_daemon"
_SPARK_DAEMON = "pyspark.daemon"
_LOOKUP = "pyspark.sql.worker.lookup_data_sources"
_SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
_JAVA_OPTIONS = "SPARK_SUBMIT_OPTS"
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_PROCESSES_END_S = 5.0
_JAVA_ENDS_S = 1.0
_LOOK_S = 0.1

_MASTER = re.compile(r"local(-cluster)?(\[.+\])?$|spark://.|yarn$|k8s://.")

DEFAULTS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The error that stops a query is raised in Python, as one sentence. The Java stack trace is in
    # the log with --conf spark.log.level=ERROR.
    "spark.log.level": "FATAL",
    # Between JVM and Python worker a socket in the file system costs a fifth of loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Spark's own daemon prints a stack trace for each idle worker when the application ends.
    "spark.python.daemon.module": WORKER_DAEMON,
    # Spark's own choice runs chmod and readlink for each file of a checkpoint (ADR 0093).
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
    # Data files are named by kohort's own sink; a job that only writes results needs no shuffle.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # A value that cannot be cast becomes NULL: one malformed record must not stop a pipeline.
    "spark.sql.ansi.enabled": "false",
}

_LOOPBACK: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

QUICK: Mapping[str, str] = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": ("-Xss16m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"),
    "spark.sql.shuffle.partitions": "1",
}
"""For tests and short commands: a session that starts quickly and computes slowly."""


def default_settings(master: str) -> dict[str, str]:
    """The settings that a session has unless others are given.

    Executors on other hosts reach the driver by the name of its host, those of a ``local`` master
    by the loopback address. A container of YARN has a temporary folder with a long path, and the
    path of a socket in the file system has at most 107 bytes.
    """
    chosen = {"spark.driver.extraJavaOptions": DRIVER_JAVA_OPTIONS, **DEFAULTS}
    if master.startswith("yarn"):
        chosen["spark.python.unix.domain.socket.enabled"] = "false"
    return {**chosen, **_LOOPBACK} if master.startswith("local") else chosen


def make_session(
    name: str, master: str = "local[2]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark, or return the process's running session.

    Sets ``JAVA_HOME``, ``SPARK_HOME`` and ``PYSPARK_PYTHON`` in this process's environment: Spark's
    scripts read them, and would otherwise start their workers with any ``python3`` on ``PATH``.

    Raises:
        ConfigError: the master has no form that Spark knows, no Java 17 or newer was found, or
            Spark does not start with these settings.
    """
    if not _MASTER.match(master):  # Java would print ten lines
        raise ConfigError(
            f"--master is {master!r}, expected local[CORES], spark://HOST:PORT, yarn or k8s://URL"
        )
    os.environ["JAVA_HOME"] = str(spark_java_home(find_java()))
    # YARN sends the zip file in pip's SPARK_HOME to its nodes.
    home = spark_home(Path(pyspark.__file__).parent)
    if home is not None and not master.startswith("yarn"):
        os.environ.setdefault("SPARK_HOME", str(home))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    # local-cluster would otherwise write a work folder into the installed package.
    scratch = Path(tempfile.gettempdir()) / f"kohort-spark-work-{os.getuid()}"
    os.environ.setdefault("SPARK_WORKER_DIR", str(scratch))
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.Builder().appName(name).master(master)
    for key, value in {**default_settings(master), **(settings or {})}.items():
        builder = builder.config(key, value)
    # kohort works with pandas 3; Spark 4.3 warns on every import that something might not.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    on_sigint = signal.getsignal(signal.SIGINT)
    with _started_jvm():
        try:
            session = builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            raise ConfigError(
                f"Spark did not start: {first_cause(error)}; check the Spark master (--master) and "
                "the settings (--conf); Java has printed more if it found the mistake"
            ) from error
    if on_sigint is not signal.default_int_handler and _is_main_thread():
        # Spark has set a handler that cancels jobs, in place of the program's own one.
        signal.signal(signal.SIGINT, on_sigint)
    _quiet(session)
    return session


def java_status() -> int | None:
    """The exit status of this process's JVM, negative for a signal; None while it runs."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    with contextlib.suppress(subprocess.TimeoutExpired):
        # The sockets of Java close a moment before Java ends.
        return int(process.wait(_JAVA_ENDS_S))
    return None


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _quiet(session: SparkSession) -> None:
    """Print no stack trace for each thread that notices the end of the JVM.

    The error that the main thread gets says it once. ``--conf spark.log.level=ERROR`` has the rest.
    """
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = _tell_unless_closed(server.handle_error)
    logging.getLogger("py4j").propagate = False
    logging.getLogger().addFilter(_is_not_py4j)


def _tell_unless_closed(tell: Callable[..., None]) -> Callable[..., None]:
    def handle_error(*request: object) -> None:
        if not isinstance(sys.exc_info()[1], EOFError | OSError):
            tell(*request)

    return handle_error


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def stop_session(spark: SparkSession) -> bool:
    """End this process's own session; False if a source still runs, a member of its group."""
    sources = stop_sources()
    stop_workers()
    # The JVM may be gone already.
    with contextlib.suppress(OSError, Py4JError):
        spark.stop()
    return not psutil.wait_procs(sources, timeout=_PROCESSES_END_S)[1]


@contextlib.contextmanager
def running_session(name: str, master: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session for one batch job; ``settings`` replace those in `QUICK`. See `make_session`."""
    started: list[SparkSession] = []
    try:
        apart(lambda: started.append(make_session(name, master, {**QUICK, **settings})))
        yield started[0]
    finally:
        if started:
            stop_session(started[0])


def apart(
    work: Callable[[], T],
    stop: Callable[[], object] = lambda: None,
    look: Callable[[], object] = lambda: None,
) -> T:
    """Do work in a thread of its own, and wait for the thread: the result of the work.

    Ctrl-C in the middle of a call of Java would print stack traces: the main thread calls no Java.

    Args:
        work: calls Java.
        stop: called after Ctrl-C until the work ends, which is waited for.
        look: called every 0.1 s, and at the end.

    Raises:
        KeyboardInterrupt, and all that the functions raise.
    """
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(work)
        try:
            while wait([running], timeout=_LOOK_S).not_done:
                look()
        except BaseException:
            stop()
            # A job of Spark that begins only now was not there to be cancelled.
            while wait([running], timeout=_LOOK_S).not_done:
                stop()
            raise
        look()
        return running.result()


def stop_planners(*, own_session: bool) -> None:
    """End the workers that planned a query, after its first batch.

    They run under Spark's own daemon, whatever the settings say. Each of them would print a stack
    trace when Spark closes its socket. Spark forks new ones when it needs them. In a session that
    other programs use, only those end that looked for data sources, once for the session: the
    others may work, and ``end_silently`` tells those of this query to print nothing.
    """
    family = {process.pid: process for process in _children(_SPARK_DAEMON)}
    for process in family.values():
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.ppid() in family and (own_session or _LOOKUP in _command(process)):
                process.terminate()


def stop_query(query: StreamingQuery, *, own_session: bool) -> None:
    """Stop a query; in this process's own session, end the Python processes before.

    The source is the first: it leaves the group, which need not wait until Spark has stopped the
    query. The batch under way is dropped or fenced. A query that has just started may start the
    source while it is being stopped.

    Args:
        query: a query that may run.
        own_session: whether no other program uses the session.

    Raises:
        PySparkException, Py4JError, OSError: the query had failed, or the JVM has ended.
    """
    if own_session:
        stop_sources()
        stop_workers()
    with ThreadPoolExecutor(1) as thread:
        stopping = thread.submit(query.stop)
        while wait([stopping], _LOOK_S).not_done:
            if own_session:
                stop_sources()
        stopping.result()


def stop_sources() -> list[psutil.Process]:
    """Tell the sources' processes of this process's own session to end; returns them.

    After the end of its query, a process that starts too late would find no socket of Spark, and
    print a stack trace.
    """
    sources = _children(_SOURCE)
    for process in sources:
        with contextlib.suppress(psutil.NoSuchProcess):
            if _ignores_sigterm(process.pid):
                process.kill()  # it has not called the source yet, so it is no member
            else:
                process.terminate()
    return sources


def _ignores_sigterm(pid: int) -> bool:
    """Whether a process ignores SIGTERM, as it begins under a JVM that does; Linux only."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    ignored = re.search(r"^SigIgn:\s*(\w+)", status, re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


def stop_workers() -> None:
    """End all Python workers of this process's own session silently, before a query is stopped."""
    daemons = _children(_SPARK_DAEMON, WORKER_DAEMON)
    for daemon in daemons:
        with contextlib.suppress(psutil.NoSuchProcess):
            daemon.terminate()
    psutil.wait_procs(daemons, timeout=_PROCESSES_END_S)


def _children(*modules: str) -> list[psutil.Process]:
    """The processes below this one that run ``python -m MODULE``, and their forks."""
    return [
        process
        for process in psutil.Process().children(recursive=True)
        if _command(process)[1:3] in [["-m", module] for module in modules]
    ]


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@contextlib.contextmanager
def _started_jvm() -> Iterator[None]:
    """Let a JVM that is started meanwhile ignore SIGTERM, and log errors only while it starts.

    A service manager sends SIGTERM to all processes. The JVM must live until this process has
    stopped the query; it ends when this process ends. PySpark lets it ignore SIGINT.
    """

    def start(command: list[str], **more: Any) -> object:
        ignore_sigint: Callable[[], None] = more["preexec_fn"]

        def prepare() -> None:
            ignore_sigint()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        more |= {"preexec_fn": prepare, "env": _with_log_settings(more["env"])}
        return subprocess.Popen(command, **more)

    vars(java_gateway)["Popen"] = start
    try:
        yield
    finally:
        vars(java_gateway)["Popen"] = subprocess.Popen


def _with_log_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of Spark's JVM with kohort's settings of log4j, unless the user has own ones.

    Spark's own settings print four lines at each start before ``spark.log.level`` is read.
    """
    folder = Path(environment.get("SPARK_CONF_DIR") or f"{environment.get('SPARK_HOME')}/conf")
    own = [file for file in folder.glob("log4j2*") if file.suffix != ".template"]
    options = environment.get(_JAVA_OPTIONS, "")
    if own or "log4j" in options:
        return dict(environment)
    settings = f'"-Dlog4j2.configurationFile={_LOG_SETTINGS}"'
    return {**environment, _JAVA_OPTIONS: f"{options} {settings}"}
