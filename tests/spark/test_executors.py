"""The warning of a cluster without executors for an application."""

from __future__ import annotations

import threading
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark", reason="pip install 'kohort[spark]'")

from kohort.spark.executors import warned_without_executors


@pytest.mark.parametrize(
    ("master", "registered", "advice"),
    [
        ("spark://h:7077", 1, "spark.cores.max"),
        ("k8s://https://h", 1, "kubectl describe pods"),
        ("spark://h:7077", 2, ""),
        ("local[2]", 1, ""),
    ],
)
def test_an_application_without_executors_says_so_once(
    master: str, registered: int, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On a standalone cluster a second application waited for ever, without a word."""
    asked, spark = threading.Event(), MagicMock()

    def size() -> int:
        asked.set()
        return registered

    spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size = size
    before = {*threading.enumerate()}
    called: list[int] = []
    with warned_without_executors(spark, master, lambda: called.append(1), wait_s=0.0):
        for thread in {*threading.enumerate()} - before:
            thread.join(60)
    assert asked.is_set() is (master != "local[2]")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * bool(advice)
    assert advice in caplog.text
    assert called == [1] * bool(advice)


def test_the_wait_ends_with_the_query() -> None:
    spark, before = MagicMock(), {*threading.enumerate()}
    with warned_without_executors(spark, "spark://h:7077", print, wait_s=3600.0):
        (timer,) = {*threading.enumerate()} - before
    timer.join(60)
    assert not timer.is_alive()
    assert not spark.mock_calls
