"""A Python process that Spark did not wait for: the decision, and a query that is started again."""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.spark.conftest import Feed

from kohort.spark.late_workers import SPARK_WAITS_S, STARTS, LateStarts, given_up, is_late_worker
from kohort.spark.verify import verify

SAID = (
    "[STREAM_FAILED] Query [id = e19c6039, runId = 6b47a887] terminated with exception: Python "
    "worker failed to connect back. SQLSTATE: XXKST"
)


def test_only_a_process_that_did_not_connect_is_late() -> None:
    assert is_late_worker(SAID)
    assert not is_late_worker("[STREAM_FAILED] terminated with exception: Python worker exited")
    assert not is_late_worker("kohort.model.errors.ConfigError: topic t does not exist")


def test_so_many_starts_in_a_row_and_no_more() -> None:
    late = LateStarts()
    assert [late.failed() for _ in range(STARTS)] == [True] * (STARTS - 1) + [False]
    assert str(late).endswith(f"(start {STARTS} of {STARTS})")


def test_a_micro_batch_between_them_begins_the_count_anew() -> None:
    late = LateStarts()
    for _ in range(STARTS - 1):
        assert late.failed()
    late.worked()
    assert late.failed()
    assert "(start 1 of" in str(late)


def test_who_is_late_each_time_is_named() -> None:
    told = given_up("/somewhere/python3")
    assert f"{STARTS} times in a row" in told
    assert f"within {SPARK_WAITS_S} s" in told
    assert "/somewhere/python3 (PYSPARK_PYTHON)" in told


def python_that_is_late(folder: Path, times: int) -> str:
    """A Python whose source process does not connect so many times, and then does."""
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
def test_a_query_whose_process_is_late_is_started_again(  # noqa: PLR0917
    spark: Any,
    run: Callable[..., list[Any]],
    feed: Callable[..., Feed],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Spark waits its 10 s in vain, for real; what is in the table is there once."""
    source = feed(2, [(b"k", b"%d" % n) for n in range(100)])
    sql = "SELECT value FROM records"
    run(source, sql, name="a")
    source.put([(b"k", b"%d" % n) for n in range(50)])
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python_that_is_late(tmp_path, times=1))
    with caplog.at_level(logging.WARNING, "kohort.spark.pipeline"):
        progress = run(source, sql, name="a")
    assert not os.listdir(tmp_path / "late")
    assert f"did not connect within {SPARK_WAITS_S} s (start 1 of {STARTS})" in caplog.text
    assert sum(p.rows for p in progress) == 50
    verdict = verify(tmp_path / "table", source.settings)
    assert verdict.ok
    assert (verdict.total("rows"), verdict.total("unread")) == (150, 0)
