"""Queries with a source process that connects to Spark too late: when they are started again."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.conftest import Feed

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from pyspark.errors.exceptions.base import StreamingQueryException

from kohort.spark.application import SPARK_WAITS_S, STARTS, Application
from kohort.spark.draining import DrainFile, Draining
from kohort.spark.failures import PipelineFailed, PythonLate, explained
from kohort.spark.pipeline_config import PipelineConfig
from kohort.spark.progress import Progress
from kohort.spark.tables.verify import verify

LATE = (
    "[STREAM_FAILED] Query [id = e19c6039, runId = 6b47a887] terminated with exception: Python "
    "worker failed to connect back. SQLSTATE: XXKST"
)


@pytest.mark.parametrize(
    ("message", "late"),
    [
        (LATE, True),
        ("[STREAM_FAILED] terminated with exception: Python worker exited", False),
        ("kohort.model.errors.ConfigError: topic t does not exist", False),
    ],
)
def test_only_a_process_that_did_not_connect_is_late(message: str, late: bool) -> None:
    error = explained(StreamingQueryException(message))
    assert isinstance(error, PythonLate) is late


@pytest.fixture
def application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application with queries that fail because Python is late, without Spark."""

    def late(*_: object, **_more: object) -> None:
        raise PythonLate(LATE)

    monkeypatch.setattr(Application, "_watch", late)
    monkeypatch.setattr(Application, "_start_query", lambda self, options: (None, None))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(pythonExec="/somewhere/python3"))
    config = PipelineConfig(bootstrap="b:1", topics="t", group="g", sql="", output=tmp_path)
    ledger: Any = None
    checkpoint: Any = SimpleNamespace(path=tmp_path)
    draining = Draining(wanted=threading.Event(), file=DrainFile(tmp_path / "drain"), timeout_s=0)
    return Application(
        spark=spark,
        config=config,
        ledger=ledger,
        checkpoint=checkpoint,
        report=lambda _: None,
        stop=threading.Event(),
        draining=draining,
        own_session=False,
    )


def test_six_late_starts_in_a_row_end_the_application(
    application: Application,
) -> None:
    for _ in range(STARTS - 1):
        assert not application.run_query(lambda: None), "another query must follow"
    with pytest.raises(PipelineFailed) as raised:
        application.run_query(lambda: None)
    message = str(raised.value)
    assert f"{STARTS} times in a row" in message
    assert f"within {SPARK_WAITS_S} s" in message
    assert "/somewhere/python3 (PYSPARK_PYTHON)" in message


def test_a_micro_batch_restarts_the_count_of_late_starts(application: Application) -> None:
    for _ in range(STARTS - 1):
        application.run_query(lambda: None)
    sink: Any = SimpleNamespace(rows_of=lambda _batch, counted: counted)
    application._note(sink, Progress(batch=0, rows=1, seconds=1.0, partitions=()))
    for _ in range(STARTS - 1):
        assert not application.run_query(lambda: None)


def test_a_late_query_is_not_started_again_after_a_stop(application: Application) -> None:
    application.stop.set()
    assert application.run_query(lambda: None)


def python_that_is_late(folder: Path, times: int) -> str:
    """A program that runs Python, except for the first ``times`` starts of a source's process."""
    counted = folder / "late"
    counted.mkdir()
    for number in range(times):
        (counted / str(number)).touch()
    program = folder / "python"
    program.write_text(
        "#!/bin/sh\n"
        f'for late in {shlex.quote(str(counted))}/*; do case "$*" in\n'
        '*python_streaming_source_runner*) if [ -e "$late" ]; then rm "$late"; exit 0; fi;;\n'
        "esac; done\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


@pytest.mark.slow
@pytest.mark.spark
def test_a_query_with_a_late_process_is_started_again_and_rows_land_once(  # noqa: PLR0917
    spark: Any,
    run: Callable[..., list[Any]],
    feed: Callable[..., Feed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark really waits for 10 s here."""
    source = feed(2, [(b"k", b"%d" % n) for n in range(100)])
    sql = "SELECT value FROM records"
    run(source, sql, name="a")
    source.put([(b"k", b"%d" % n) for n in range(50)])
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_that_is_late(tmp_path, times=1))
    with caplog.at_level(logging.WARNING, "kohort.spark.application"):
        progress = run(source, sql, name="a")
    assert not os.listdir(tmp_path / "late")
    assert f"did not connect within {SPARK_WAITS_S} s (start 1 of {STARTS})" in caplog.text
    assert sum(p.rows for p in progress) == 50
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("unread")) == (150, 0)
