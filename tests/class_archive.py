"""``python -m tests.class_archive FILE``: an archive of the classes that a pipeline on Spark loads.

The suite starts Spark dozens of times, mostly in processes of their own. With the archive a start
costs half the CPU time. ``make test`` makes the archive, and ``tests/conftest.py`` names it to
every Spark by ``SPARK_SUBMIT_OPTS``. There is none without Java, or with a Java that makes none.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.host.java import (
    archive_classes_at_exit,
    archived_classes,
    find_java,
    temporary_files_of_spark,
)
from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILE = Path(sys.prefix) / "spark-classes.jsa"
_OPTIONS = "SPARK_SUBMIT_OPTS"


def use_archive() -> None:
    """Let every Spark that this process or its children start begin with little CPU time.

    Such a Spark takes its classes from the archive, and compiles them once instead of twice.
    """
    options = os.environ.get(_OPTIONS, "").split()
    quick = (*archived_classes(FILE), "-XX:TieredStopAtLevel=1")
    missing = [option for option in quick if option not in options]
    os.environ[_OPTIONS] = " ".join([*options, *missing])


def make(archive: Path) -> None:
    """Run queries on a Spark that archives its classes at its end."""
    from pyspark import SparkContext

    from kohort.spark.session import QUICK, make_session

    # A short path: Spark makes Unix sockets in the folder.
    with tempfile.TemporaryDirectory(prefix="k") as folder:
        made = Path(folder) / archive.name
        os.environ.update(temporary_files_of_spark(Path(folder)))
        os.environ[_OPTIONS] += " " + " ".join(archive_classes_at_exit(made))
        session = make_session("class-archive", "local[1]", QUICK)
        rows = session.range(100).selectExpr("id", "CAST(id AS STRING) AS text")
        rows.mapInArrow(lambda batches: batches, rows.schema).groupBy("id").count().collect()
        (Path(folder) / "lines").mkdir()
        (Path(folder) / "lines" / "one").write_text("a line\n")
        stream = session.readStream.text(f"{folder}/lines").selectExpr("upper(value)")
        stream.writeStream.foreachBatch(_collect).trigger(
            availableNow=True
        ).start().awaitTermination()
        session.stop()
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.communicate()  # the end of its standard input ends Java
        if made.exists():
            shutil.move(made, archive)


def _collect(batch: DataFrame, _: int) -> None:
    batch.collect()


if __name__ == "__main__":
    try:
        find_java()
    except ConfigError:
        sys.exit()
    make(Path(sys.argv[1]).absolute())
