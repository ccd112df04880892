"""The histories of many groups as tables: rebalances, ownership, partition-seconds, moves, storms.

In: files, and a function that reads one file. Out: four Parquet tables in one folder. Must not
know: formats of files, wordings, terminals.

A task reads one file and writes its events in lists, one for each group and this many events. Spark
brings the lists of a group together; a second task feeds them to an ``Explainer`` in the order of
their times, as ``kohort explain`` does with one process. So a group is never divided, and tasks
share nothing.
"""

from __future__ import annotations

import heapq
import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors.exceptions.base import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from kohort.explain.amounts import Amount, weakest
from kohort.explain.explaining import Explained, Explainer
from kohort.explain.patterns.group import storms
from kohort.explain.rebalances import Rebalance
from kohort.explain.told import Told
from kohort.history.fewest_moves import fewest_moves
from kohort.host.collector import without_collector
from kohort.model.errors import ConfigError, KohortError
from kohort.spark.failures import error_of_task

Reader: TypeAlias = Callable[[str], Iterator[tuple[float, Told] | str]]
"""Reads a file: events with their times, in their order, and remarks about the file as texts."""

_LIST: Final = 1_000
"""Events in one list."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FACTS: Final = "told_group string, file int, number bigint, told binary"
_REBALANCE: Final = (
    "generation int, before int, cause string, certain boolean, reason string, member string, "
    "instance string, client string, host string, began timestamp, joined timestamp, "
    "assigned timestamp, join_s double, leader_s double, members int, moved int, needless int, "
    "longest_stop_s double, partition_seconds double, known string, processed_again double, "
    "source string, file string, line bigint"
)
_OWNED: Final = "partition string, owner string, began timestamp, ended timestamp"
_STORM: Final = "began timestamp, ended timestamp, rebalances int, cause string"
_GROUP: Final = (
    "group string, written_by string, began timestamp, ended timestamp, rebalances bigint, "
    "moved bigint, needless bigint, partition_seconds double, known string, "
    "longest_stop_s double, storms bigint, main_cause string, findings array<string>"
)
_RESULT: Final = (
    f"{_GROUP}, all_rebalances array<struct<{_REBALANCE}>>, all_owned array<struct<{_OWNED}>>, "
    f"all_storms array<struct<{_STORM}>>, remarks array<string>"
)
GROUPS: Final = "groups"
REBALANCES: Final = "rebalances"
OWNERSHIP: Final = "ownership"
STORMS: Final = "storms"


@contextmanager
def new_tables(directory: Path) -> Iterator[None]:
    """Make a folder for tables; if the body of the ``with`` fails, nothing stays in the folder.

    Raises:
        ConfigError: the folder holds something, or cannot be written.
    """
    mine = directory / ".running"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ConfigError(
                f"{directory} holds something already: name a new folder for the tables"
            )
        mine.touch(exist_ok=False)
    except OSError as error:
        raise ConfigError(
            f"{directory} cannot be written: {error.strerror}; name a folder that this user may "
            "make or write, on a disk with free space"
        ) from error
    try:
        yield
    except BaseException:
        for table in (GROUPS, REBALANCES, OWNERSHIP, STORMS):
            shutil.rmtree(directory / table, ignore_errors=True)
        raise
    finally:
        mine.unlink()


def write_tables(
    files: Sequence[Path], directory: Path, read: Reader, spark: SparkSession
) -> tuple[pa.Table, list[str]]:
    """Explain the groups in the files, and write the tables; the table of groups, and remarks.

    Args:
        files: each is read by one task; all executors must see them.
        directory: the folder for the tables, on a disk that all executors share.
        read: a function of an importable module, which executors need, too.
        spark: a session.

    Raises:
        ConfigError: a file cannot be read.
        KohortError: a task failed. No table is complete without its file ``_SUCCESS``.
    """
    # A group is one row here, however few bytes it has: Spark must not put groups together.
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    spark.conf.set("spark.sql.shuffle.partitions", str(4 * spark.sparkContext.defaultParallelism))
    names = [str(path) for path in files]
    numbers = spark.range(0, len(names), 1, len(names))
    told = numbers.mapInArrow(partial(_read, read, names), _FACTS)
    schema = to_arrow_schema(spark.createDataFrame([], _RESULT).schema, timezone="UTC")
    by_group = told.groupBy("told_group")
    # Spark does not take a partial of a function with type hints.
    explained = by_group.applyInArrow(lambda lists: _explain(schema, lists), _RESULT)
    explained = explained.persist(StorageLevel.DISK_ONLY)
    try:
        found = explained.where("group IS NOT NULL")
        _write(found.select(*(name.split()[0] for name in _GROUP.split(", "))), directory / GROUPS)
        for name, column in _PARTS:
            _write(found.selectExpr("group", f"inline({column})"), directory / name)
        rows = explained.where("group IS NULL").select("remarks").collect()
        groups = spark.read.parquet(str(directory / GROUPS)).toArrow()
    except PySparkException as error:
        raise _told(error) from error
    finally:
        explained.unpersist()
    return groups, sorted(remark for row in rows for remark in row.remarks)


_PARTS: Final = (
    (REBALANCES, "all_rebalances"),
    (OWNERSHIP, "all_owned"),
    (STORMS, "all_storms"),
)


def _write(frame: DataFrame, folder: Path) -> None:
    frame.write.parquet(str(folder))


def _told(error: PySparkException) -> KohortError:
    reason = error_of_task(error)
    known = "ConfigError: "
    if known in reason:
        return ConfigError(reason.partition(known)[2])
    return KohortError(f"the histories were not explained: {reason}")


# -- tasks ----------------------------------------------------------------------------------------


def _read(
    read: Reader, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The events of files in lists; remarks are lists of the group NULL."""
    with without_collector():
        for batch in batches:
            for file in batch.column(0).to_pylist():
                yield from _lists(read, names[file], file)


def _lists(read: Reader, name: str, file: int) -> Iterator[pa.RecordBatch]:
    lists: dict[str | None, list[object]] = {}
    number = 0
    for item in read(name):
        group = None if isinstance(item, str) else item[1].group
        mine = lists.setdefault(group, [])
        mine.append(item)
        if len(mine) == _LIST:
            yield _list(group, file, number, lists.pop(group))
            number += 1
    for group, rest in lists.items():
        yield _list(group, file, number, rest)
        number += 1


def _list(group: str | None, file: int, number: int, items: list[object]) -> pa.RecordBatch:
    data = pickle.dumps(items, pickle.HIGHEST_PROTOCOL)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([group], pa.string()),
            pa.array([file], pa.int32()),
            pa.array([number], pa.int64()),
            pa.array([data], pa.binary()),
        ],
        ["told_group", "file", "number", "told"],
    )


def _explain(schema: pa.Schema, lists: pa.Table) -> pa.Table:
    """The result of one group: one row, or several if its name belongs to groups of two clusters.

    The lists of a file come in the order of their numbers, and their events in the order of times.
    """
    lists = lists.sort_by([("file", "ascending"), ("number", "ascending")])
    group = lists.column("told_group")[0].as_py()
    by_file: dict[int, list[bytes]] = {}
    for file, data in zip(
        lists.column("file").to_pylist(), lists.column("told").to_pylist(), strict=True
    ):
        by_file.setdefault(file, []).append(data)
    if group is None:
        remarks = [text for each in by_file.values() for text in _unpacked(each)]
        return pa.Table.from_pylist([{"remarks": remarks}], schema=schema)
    streams = [_unpacked(each) for each in by_file.values()]
    events = heapq.merge(*streams, key=lambda timed: timed[0])
    with without_collector():
        explained = Explainer(fewest_moves).feed_all(told for _, told in events).finish()
    return pa.Table.from_pylist([_row(each) for each in explained], schema=schema)


def _unpacked(lists: Iterable[bytes]) -> Iterator[Any]:
    """The events of lists that a task of this job made."""
    for data in lists:
        yield from pickle.loads(data)


def _row(explained: Explained) -> dict[str, Any]:
    story = explained.story
    rebalances = list(story.rebalances)
    found = list(storms(story))
    costs = [each.cost for each in rebalances if each.cost is not None]
    stops = [each.dead.value for each in rebalances if each.dead is not None]
    causes = [cause.value for cause, _ in story.causes.most_common(1)]
    return {
        "group": story.group,
        "written_by": explained.makers,
        "began": _time(story.first),
        "ended": _time(story.last),
        "rebalances": story.total,
        "moved": _sum(each.moved for each in rebalances),
        "needless": _sum(each.needless for each in rebalances),
        "partition_seconds": sum(cost.value for cost in costs) if costs else None,
        "known": weakest({cost.known for cost in costs}).value if costs else None,
        "longest_stop_s": max(stops, default=None),
        "storms": len(found),
        "main_cause": causes[0] if causes else None,
        "findings": [finding.name for finding in explained.findings],
        "all_rebalances": list(map(_rebalance, rebalances)),
        "all_owned": [
            {
                "partition": owned.partition,
                "owner": owned.owner,
                "began": _time(owned.begin),
                "ended": _time(owned.end),
            }
            for owned in story.owned
        ],
        "all_storms": list(map(_storm, found)),
        "remarks": [],
    }


def _rebalance(each: Rebalance) -> dict[str, Any]:
    return {
        "generation": each.generation,
        "before": each.before,
        "cause": each.cause.value,
        "certain": each.certain,
        "reason": each.reason or None,
        "member": each.member or None,
        "instance": each.instance or None,
        "client": each.client or None,
        "host": each.host or None,
        "began": _time(each.began),
        "joined": _time(each.joined),
        "assigned": _time(each.assigned),
        "join_s": each.join_s,
        "leader_s": each.leader_s,
        "members": each.members,
        "moved": each.moved,
        "needless": each.needless,
        "longest_stop_s": _value(each.dead),
        "partition_seconds": _value(each.cost),
        "known": None if each.cost is None else each.cost.known.value,
        "processed_again": _value(each.duplicates),
        "source": each.side.value,
        "file": each.place.file,
        "line": each.place.line,
    }


def _storm(run: list[Rebalance]) -> dict[str, Any]:
    causes = [each.cause.value for each in run]
    return {
        "began": _time(run[0].began if run[0].began is not None else run[0].ended),
        "ended": _time(run[-1].ended),
        "rebalances": len(run),
        "cause": max(causes, key=causes.count),
    }


def _value(amount: Amount | None) -> float | None:
    return None if amount is None else float(amount.value)


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum of the known values; None if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _time(seconds: float | None) -> datetime | None:
    """Seconds since 1970, or of a day or a simulated world, as a time in UTC."""
    return None if seconds is None else _EPOCH + timedelta(seconds=seconds)
