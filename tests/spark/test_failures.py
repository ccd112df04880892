"""Each way in which Spark ends is told in one line: finding S16. The texts are Spark's own."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors.exceptions.base import StreamingQueryException

from kohort.client.errors import RequestFailed
from kohort.model.errors import ConfigError, ErrorCode
from kohort.spark import session
from kohort.spark.failures import (
    AGAIN,
    NoRight,
    NoSpace,
    PipelineFailed,
    RecordRefused,
    explained,
    first_cause,
)

STREAM = (
    "[STREAM_FAILED] Query [id = bfec5c0e-c395-4d20-99bc-54034c1d1c51, runId = "
    "9b87c8a7-f97c-4cc6-9433-2600a4223bff] terminated with exception: {} SQLSTATE: XXKST"
)
TRACE = """[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function.
Traceback (most recent call last):
  File "parquet_sink.py", line 1, in write_batch
{}

JVM stacktrace:
\tat org.apache.spark.sql.execution.streaming.MicroBatchExecution.run(MicroBatchExecution.scala:1)
"""

TEXTS = {
    "source": (
        STREAM.format("Broken pipe"),
        "the process of the source, a member of the group, ended, perhaps killed by the kernel",
    ),
    "task": (
        STREAM.format(
            "Job aborted due to stage failure: Task 0 in stage 9.0 failed 1 times: "
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat a.B"
        ),
        "a process that reads or writes records ended (Python worker exited unexpectedly (crash",
    ),
    "workers that do not start": (
        STREAM.format(
            TRACE.format(
                "pyspark.errors.exceptions.captured.SparkException: \nError from python worker:\n"
                "  Traceback (most recent call last):\n    daemon.manager()\n"
                "  OSError: AF_UNIX path too long\nPYTHONPATH was:\n  /lib/pyspark.zip\n"
            )
        ),
        "the Python of Spark's workers (PYSPARK_PYTHON) did not start: OSError: AF_UNIX path too",
    ),
    "disk": (
        STREAM.format(
            TRACE.format("OSError: [Errno 28] No space left on device: '/lake/data/t/0/a.parquet'")
        ),
        "no space is left on the disk under /lake/data/t/0/a.parquet; free some",
    ),
    "disk of the checkpoint": (
        STREAM.format("java.io.IOException: No space left on device"),
        "no space is left on the disk; free some",
    ),
}


@pytest.mark.parametrize(("text", "said"), TEXTS.values(), ids=TEXTS)
def test_an_accident_is_one_line_with_its_cause_and_the_next_step(text: str, said: str) -> None:
    error = explained(StreamingQueryException(text))
    assert isinstance(error, NoSpace if "No space" in text else PipelineFailed)
    told = str(error)
    assert told.startswith(f"the query stopped: {said}")
    assert told.endswith(AGAIN)
    assert "\n" not in told


def test_a_function_that_fails_on_a_record_waits_for_a_person() -> None:
    """A supervisor that starts the same command again would only repeat the failure."""
    told = "function Orders: t-0, offsets 0 to 9: ValueError: x"
    failed = f"kohort.spark.state.pieces.StageFailed: {told}"
    error = explained(StreamingQueryException(STREAM.format(TRACE.format(failed))))
    assert isinstance(error, RecordRefused)
    assert error.exit_status == 2
    assert str(error).startswith("the query stopped: function Orders: t-0, offsets 0 to 9: ValueE")
    assert "mend the function" in str(error)


def test_a_full_disk_without_a_path_is_told_with_the_folders_that_may_be_full() -> None:
    """Java names no file: its checkpoints are below --output, its own files in another folder."""
    text = STREAM.format("java.io.IOException: No space left on device")
    told = str(explained(StreamingQueryException(text), None, Path("/lake")))
    assert f"is left on the disk under /lake or {gettempdir()}; free some" in told


def test_a_sentence_of_kohort_goes_before_everything_around_it() -> None:
    ledger = (
        "kohort.spark.ledgers.ledger.LedgerError: /lake/ledger.db cannot be written: disk is full"
    )
    error = explained(StreamingQueryException(STREAM.format(TRACE.format(ledger))))
    assert isinstance(error, NoSpace)
    assert str(error) == "the query stopped: /lake/ledger.db cannot be written: disk is full"
    # The next start would be refused, too: a running application ends with the same status.
    for kind in ("kohort.model.errors.ConfigError", "kohort.spark.ledgers.ledger.OtherVersion"):
        text = STREAM.format(TRACE.format(f"{kind}: no topic t"))
        wrong = explained(StreamingQueryException(text))
        assert isinstance(wrong, ConfigError)
        assert str(wrong) == "no topic t"


@pytest.mark.parametrize("module", ["kohort", "pyspark", "kohort.spark.source.data_source"])
def test_a_python_of_workers_without_kohort_is_named_with_the_variable(module: str) -> None:
    """Before the query, the error comes from Py4J; in a task, from the query."""
    text = f"ModuleNotFoundError: No module named '{module}'"
    for error in (
        Py4JNetworkError(f"An error occurred while calling o1.load.\n{text})\nPYTHONPATH was:\n"),
        StreamingQueryException(STREAM.format(TRACE.format(text))),
    ):
        found = explained(error)
        assert isinstance(found, ConfigError)
        assert str(found).startswith(f"the Python of Spark's workers has no module '{module}'; ")
        assert "PYSPARK_PYTHON" in str(found)


def test_a_python_of_workers_that_is_not_there_is_named() -> None:
    text = 'java.io.IOException: Cannot run program "env/bin/python": error=2, No such file\n\tat'
    found = explained(Py4JNetworkError(f"An error occurred while calling o1.load.\n: {text}"))
    assert isinstance(found, ConfigError)
    assert "cannot be run: there is no program env/bin/python; expected" in str(found)


def test_an_error_of_a_call_of_java_is_told_without_the_call() -> None:
    text = "An error occurred while calling o1.load.\n: java.lang.OutOfMemoryError: Java heap space"
    found = explained(Py4JNetworkError(f"{text}\n\tat a.B"))
    assert str(found) == f"Spark ended unexpectedly: OutOfMemoryError: Java heap space; {AGAIN}"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012",
            "Division by zero. (DIVIDE_BY_ZERO)",
        ),
        ("[USER_RAISED_EXCEPTION] no id SQLSTATE: P0001", "no id (USER_RAISED_EXCEPTION)"),
    ],
)
def test_a_record_on_which_the_sql_fails_needs_other_sql(told: str, said: str) -> None:
    error = explained(StreamingQueryException(STREAM.format(TRACE.format(f"E: {told}"))))
    assert isinstance(error, RecordRefused)
    assert error.exit_status == 2
    assert str(error).startswith(f"the query stopped: the SQL fails on a record: {said}; ")
    assert "\n" not in str(error)


def test_an_error_of_a_task_without_a_message_of_its_own_is_the_last_line_of_its_trace() -> None:
    text = TRACE.format(
        "pyspark.errors.exceptions.captured.PythonException: \n"
        "pyspark.errors.exceptions.captured.PythonException: An exception was thrown from the "
        'Python worker:\nTraceback (most recent call last):\n  File "a.py", line 1, in write\n'
        "ZeroDivisionError: division by zero\n"
    )
    error = explained(StreamingQueryException(STREAM.format(text)))
    assert str(error) == "the query stopped: ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            "PermissionError: [Errno 13] Permission denied: '/lake/data'",
            "this user may not write /lake/data; give the user the right to write the folder",
        ),
        (
            "PermissionError: [Errno 13] Failed to open local file '/lake/data/t/0/a.parquet'. "
            "Detail: [errno 13] Permission denied",
            "this user may not write /lake/data/t/0/a.parquet; give the user the right",
        ),
        (
            "java.io.FileNotFoundException: /lake/_kohort/.1.tmp (Permission denied)",
            "this user may not write /lake/_kohort/.1.tmp; give the user the right",
        ),
        (
            "kohort.client.errors.RequestFailed: "
            + str(RequestFailed(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group lake")),
            "group lake: the broker answered GROUP_AUTHORIZATION_FAILED (30): the user of this "
            "client needs a permission there (an ACL), or another login",
        ),
    ],
)
def test_a_missing_right_needs_a_person_before_a_new_start(told: str, said: str) -> None:
    error = explained(StreamingQueryException(STREAM.format(TRACE.format(told))))
    assert isinstance(error, NoRight)
    assert error.exit_status == 2
    assert str(error).startswith(f"the query stopped: {said}")
    assert "\n" not in str(error)


def test_an_error_of_a_foreign_library_is_the_line_below_its_trace() -> None:
    """An error of psycopg was told as «Return Message: Traceback (most recent call last):»."""
    text = STREAM.format(
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in "
        "foreach batch sink. Reason: An exception was raised by the Python Proxy. Return Message: "
        "Traceback (most recent call last):\n"
        '  File "clientserver.py", line 644, in _call_proxy\n'
        "    return_value = getattr(self.pool[obj_id], method)(*params)\n"
        "           ^^^^^\n"
        "psycopg.errors.UndefinedTable: relation manifest does not exist\nLINE 1: SELECT\n\tat a.B"
    )
    told = str(explained(StreamingQueryException(text)))
    assert told == (
        "the query stopped: psycopg.errors.UndefinedTable: relation manifest does not exist"
    )


def test_a_damaged_checkpoint_waits_for_a_person_and_may_be_removed() -> None:
    """It was «Checksum error», and status 1: a supervisor started it again and again."""
    file = "/lake/_kohort/checkpoints/a/offsets/4"
    text = STREAM.format(f"Checksum error: file:{file} at 0 exp: -1752947416 got: 1842640135")
    error = explained(StreamingQueryException(text))
    assert isinstance(error, ConfigError)
    assert f"{file}, a file of the checkpoint, is damaged; committed rows are safe" in str(error)
    assert "remove /lake/_kohort/checkpoints/a, and start again" in str(error)


def test_an_unknown_error_is_its_first_line_without_spark_s_frame() -> None:
    error = explained(StreamingQueryException(STREAM.format("Something odd.")))
    assert str(error) == "the query stopped: Something odd."
    error = explained(Py4JNetworkError("Error while sending\nor receiving"))
    assert str(error) == f"Spark ended unexpectedly: Error while sending; {AGAIN}"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (-signal.SIGKILL, "was killed by SIGKILL, perhaps by the kernel because memory was short"),
        (-signal.SIGSEGV, "was ended by SIGSEGV"),
        (1, "ended with status 1"),
    ],
)
def test_the_end_of_java_is_told_whatever_else_failed_by_it(status: int, said: str) -> None:
    error = explained(ConnectionRefusedError(111, "Connection refused"), status)
    assert str(error) == f"Spark's Java process {said}: {AGAIN}"


def test_the_status_of_java_is_that_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        monkeypatch.setattr(session, "_JAVA_ENDS_S", 0.01)
        assert session.java_status() is None
        monkeypatch.undo()
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        process.kill()
        assert session.java_status() == -signal.SIGKILL
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert session.java_status() is None


def test_threads_that_notice_the_end_of_java_print_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A dead JVM printed 31 to 50 lines: the accumulators' server, and py4j on the root logger."""
    told: list[object] = []
    server = SimpleNamespace(handle_error=lambda *request: told.append(request))
    fake: Any = SimpleNamespace(sparkContext=SimpleNamespace(_accumulatorServer=server))
    root = logging.getLogger()
    monkeypatch.setattr(root, "filters", [])
    monkeypatch.setattr(logging.getLogger("py4j"), "propagate", True)
    session._quiet(fake)
    for error in (EOFError(), ConnectionResetError()):
        try:
            raise error
        except (EOFError, OSError):
            server.handle_error("request", "address")
    assert told == []
    try:
        raise ValueError
    except ValueError:
        server.handle_error("request", "address")
    assert told == [("request", "address")]
    record = logging.LogRecord("root", logging.ERROR, "", 1, "", None, None)
    for path, printed in (("/site/py4j/java_gateway.py", False), ("/site/app.py", True)):
        record.pathname = path
        assert bool(root.filter(record)) is printed
    assert not logging.getLogger("py4j").propagate


@pytest.mark.slow
def test_a_stop_before_spark_has_started_starts_nothing(tmp_path: Path) -> None:
    """SIGTERM in the first seconds; before, it printed a stack trace, or started Spark first."""
    program = f"""
import signal, sys, threading
from click.testing import CliRunner
from kohort.spark import pipeline

def check(options):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    threading.Event().wait(1)

def never(*_, **__):
    raise AssertionError("Spark was started")

pipeline._check_topics, pipeline.make_session = check, never
from kohort.cli.main import main
open({str(tmp_path / "q.sql")!r}, "w").write("SELECT value FROM records")
main(["pipeline", "--bootstrap", "h:1", "--topic", "t", "--group", "g",
      "--sql", {str(tmp_path / "q.sql")!r}, "--output", {str(tmp_path / "table")!r}])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "stopped before it has read anything\n"


def throwable(told: str, cause: object = None) -> Any:
    return SimpleNamespace(toString=lambda: told, getCause=lambda: cause)


def test_a_spark_that_does_not_start_tells_the_first_cause() -> None:
    """The client of Kubernetes says «An error has occurred.» of each of these."""
    refused = throwable("java.net.ConnectException: Connection refused")
    wrapped = throwable("io.fabric8.KubernetesClientException: An error has occurred.", refused)
    error: Any = Exception("An error occurred while calling None.SparkContext")
    assert first_cause(error) == "An error occurred while calling None.SparkContext"
    error.java_exception = throwable("org.apache.spark.SparkException: External scheduler", wrapped)
    assert first_cause(error) == "java.net.ConnectException: Connection refused"
    told = 'KubernetesClientException: Message: pods is forbidden: User "lake"'
    error.java_exception = throwable(f"{told}. Received status: Status(apiVersion=v1, code=403)")
    assert first_cause(error) == told
