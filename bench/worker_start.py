"""Measures the CPU time of a Python worker of Spark from its fork until it can read and write.

One Spark runs tasks that do nothing but load what a pipeline's tasks load, each in a new worker.
Three ways are compared: Spark as pip installs it, which imports pyspark from a zip file without
compiled modules; the same daemon of workers with kohort's ``SPARK_HOME``, which has no zip file;
kohort's daemon with the same ``SPARK_HOME``, which imports before it forks.

    python -m bench.worker_start [--workers N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
from bench.ending import end_with_children
from bench.results import emit

from kohort.spark.session import WORKER_DAEMON, make_session

SPARKS, MODULES = "pyspark.daemon", "installed package"
PIP = {"SPARK_HOME": str(Path(pyspark.__file__).parent)}
WAYS: tuple[tuple[str, str, dict[str, str]], ...] = (
    (SPARKS, "zip file", PIP),
    (SPARKS, MODULES, {}),
    (WORKER_DAEMON, MODULES, {}),
)
"""The daemon, where its workers find pyspark, and variables for that."""

WORKERS = 8


def main() -> int:
    end_with_children()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--way", type=int, help="measure this one of the three, in this process")
    options = parser.parse_args()
    if options.way is None:
        for number, (_, _, variables) in enumerate(WAYS):
            command = [sys.executable, "-m", "bench.worker_start", "--way", str(number)]
            command += ["--workers", str(options.workers)]
            subprocess.run(command, env={**os.environ, **variables}, check=True)
        return 0
    daemon, pyspark_from, _ = WAYS[options.way]
    seconds = measure(daemon, options.workers)
    row = {"daemon": daemon, "pyspark_from": pyspark_from, "workers": len(seconds)}
    # The first worker may compile what the others take from the cache.
    emit("worker_start", row | {"cpu_s_a_worker": statistics.median(seconds)})
    return 0


def measure(daemon: str, workers: int) -> list[float]:
    """CPU seconds of each worker."""
    settings = {"spark.python.daemon.module": daemon, "spark.python.worker.reuse": "false"}
    session = make_session("worker-start", "local[1]", settings)
    try:
        rows = session.range(0, workers, 1, workers).mapInArrow(loaded, "cpu_s double")
        return [row.cpu_s for row in rows.collect()]
    finally:
        session.stop()


def loaded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Load what read and write tasks load; the CPU seconds of this process since its fork."""
    from kohort.fetch import columns  # noqa: PLC0415 - the start is measured
    from kohort.spark.source import reading  # noqa: F401, PLC0415 - as above
    from kohort.spark.tables import piece_files  # noqa: F401, PLC0415 - as above

    columns.load()
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"cpu_s": [time.process_time()]})


if __name__ == "__main__":
    sys.exit(main())
