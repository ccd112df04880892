"""Runs of the lab as Spark tasks; their results as Parquet files in one folder.

In: jobs, a folder that driver and executors see. Out: the metrics of each job, also as an Arrow
table. A task writes its file under another name first, so that each file is whole. A sweep that was
stopped goes on with the jobs that have no result yet. Must not know: rates, tables, pictures.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import SparkSession

import kohort
from kohort.history.clairvoyant import Costs
from kohort.history.cost_values import Metrics
from kohort.lab.scenarios.base import Timeouts
from kohort.lab.table import Job, do
from kohort.model.errors import ConfigError, KohortError
from kohort.spark.failures import error_of_task
from kohort.spark.session import apart
from kohort.spark.tables.durable import beside

RUNS: Final = "runs"
"""The folder of the results."""
_VERSION: Final = b"kohort_sweep"
_MOST_OF_A_TASK: Final = 20
_TASKS_OF_A_CORE: Final = 16
_JOB: Final = ("scenario", "policy", "members", "partitions", "seed")
_COSTS: Final = tuple(spec.name for spec in fields(Costs))
_METRICS: Final = tuple(spec.name for spec in fields(Metrics))
SCHEMA: Final = pa.schema(
    [
        ("scenario", pa.string()),
        ("policy", pa.string()),
        ("members", pa.int32()),
        ("partitions", pa.int32()),
        ("seed", pa.int64()),
        ("session_timeout_ms", pa.int64()),
        ("max_poll_interval_ms", pa.int64()),
        *((f"cost_{name}", pa.bool_() if name == "state_survives" else pa.int64())
          for name in _COSTS),
        *((f"result_{name}", pa.int64()) for name in _METRICS),
    ],
    metadata={_VERSION: kohort.__version__.encode()},
)  # fmt: skip
"""A row for each run: the job, then its metrics. The metadata has the version of kohort."""


def run_jobs(
    jobs: Sequence[Job],
    directory: Path,
    spark: SparkSession,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Job, Metrics]:
    """Do the jobs that have no result in the folder yet; the metrics of all jobs.

    Args:
        jobs: the runs of a sweep.
        directory: the folder of the sweep, on a disk that all executors share.
        spark: a session; its executors need kohort.
        report: takes the number of jobs with a result, and of all jobs.

    Raises:
        ConfigError: the folder cannot be written, or has results of another version of kohort.
        KohortError: a run failed; the results of other runs are kept.
    """
    wanted = list(dict.fromkeys(jobs))
    folder = directory / RUNS
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
    done = finished(wanted, directory)
    rest = [job for job in wanted if job not in done]
    report(len(done), len(wanted))
    if rest:
        parts = _parts(rest, spark)
        sizes = {_name(part): len(part) for part in parts}
        before = len(done)

        def look() -> None:
            there = sum(sizes.get(name, 0) for name in os.listdir(folder))
            report(before + there, len(wanted))

        _do_all(parts, folder, spark, look)
        done = finished(wanted, directory)
    missing = [job for job in wanted if job not in done]
    if missing:
        raise KohortError(
            f"{len(missing)} runs have no result in {folder}, first {missing[0]}: is the folder on "
            "a disk that all executors share?"
        )
    return done


def finished(jobs: Iterable[Job], directory: Path) -> dict[Job, Metrics]:
    """The metrics of those jobs that have a result in the folder.

    Raises:
        ConfigError: as `read_runs`.
    """
    wanted = set(jobs)
    return {job: metrics for job, metrics in _results(directory) if job in wanted}


def read_runs(directory: Path) -> pa.Table:
    """All results of a sweep as one Arrow table.

    Raises:
        ConfigError: a file cannot be read, or was written by another version of kohort.
    """
    tables = [_read(path) for path in sorted((directory / RUNS).glob("*.parquet"))]
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def _results(directory: Path) -> Iterator[tuple[Job, Metrics]]:
    for row in read_runs(directory).to_pylist():
        costs = Costs(**{name: row[f"cost_{name}"] for name in _COSTS})
        timeouts = Timeouts(
            session_ms=row["session_timeout_ms"], poll_ms=row["max_poll_interval_ms"]
        )
        job = Job(**{name: row[name] for name in _JOB}, costs=costs, timeouts=timeouts)
        yield job, Metrics(**{name: row[f"result_{name}"] for name in _METRICS})


def _read(path: Path) -> pa.Table:
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ConfigError(
            f"{path} is no whole Parquet file ({error}): remove it, and its runs are done again"
        ) from error
    version = (table.schema.metadata or {}).get(_VERSION, b"").decode()
    if version != kohort.__version__ or not table.schema.equals(SCHEMA):
        raise ConfigError(
            f"{path} has results of kohort {version or 'of an unknown version'}, this is kohort "
            f"{kohort.__version__}: runs of two versions cannot be compared; name another folder"
        )
    return table


# -- tasks ----------------------------------------------------------------------------------------


def _parts(jobs: Sequence[Job], spark: SparkSession) -> list[tuple[Job, ...]]:
    """The jobs of each task. A task has jobs from all ends of the list: large and small ones."""
    tasks = spark.sparkContext.defaultParallelism * _TASKS_OF_A_CORE
    size = max(1, min(_MOST_OF_A_TASK, len(jobs) // tasks))
    count = -(-len(jobs) // size)
    return [tuple(jobs[n::count]) for n in range(count)]


def _name(part: Sequence[Job]) -> str:
    return hashlib.sha256(repr(part).encode()).hexdigest()[:24] + ".parquet"


def _do_all(
    parts: Sequence[tuple[Job, ...]], folder: Path, spark: SparkSession, look: Callable[[], None]
) -> None:
    """Do all parts in tasks; calls ``look`` meanwhile."""
    numbers = spark.range(0, len(parts), 1, len(parts))
    work = numbers.mapInArrow(partial(_task, parts, str(folder)), "runs bigint")
    try:
        apart(work.collect, spark.sparkContext.cancelAllJobs, look)
    except PySparkException as error:
        raise KohortError(f"a run of the lab failed: {error_of_task(error)}") from error


def _task(
    parts: Sequence[tuple[Job, ...]], folder: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The work of an executor: do the runs of a part, write their results."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            part = parts[number]
            _write([_row(*_done(job)) for job in part], Path(folder) / _name(part))
            yield pa.RecordBatch.from_arrays([pa.array([len(part)], pa.int64())], ["runs"])


def _done(job: Job) -> tuple[Job, Metrics]:
    try:
        return do(job)
    except Exception as error:
        raise RuntimeError(f"{job}: {error}") from error


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    """Write a file that is whole as soon as it has its name."""
    with beside(path) as made:
        pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), made)
        made.replace(path)


def _row(job: Job, metrics: Metrics) -> dict[str, Any]:
    return {
        **{name: getattr(job, name) for name in _JOB},
        "session_timeout_ms": job.timeouts.session_ms,
        "max_poll_interval_ms": job.timeouts.poll_ms,
        **{f"cost_{name}": getattr(job.costs, name) for name in _COSTS},
        **{f"result_{name}": getattr(metrics, name) for name in _METRICS},
    }
