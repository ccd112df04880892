"""``format("kohort")``: the classes that Spark calls.

In: Spark's calls. Out: Spark's types. Must not know: any rule. Each method forwards its call to
``kohort.spark.source.driver`` or ``kohort.spark.source.reading``.

Spark makes stream readers in several processes, pickles one of them for the executors, and calls
only one of them on the driver. So a reader starts nothing before the first driver-side call.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kohort.host.log_lines import set_up_from_environment
from kohort.spark.source.options import RECORD_COLUMNS, SourceOptions, parse_options, record_columns
from kohort.spark.source.planning import Piece
from kohort.spark.worker_daemon import end_silently

if TYPE_CHECKING:
    import pyarrow as pa

    from kohort.spark.source.driver import SourceDriver

TASKS = "pieces binary"
"""One row for each task, see ``kohort.spark.plain.reading.task_row``."""
_SIGTERM_STATUS: Final = 128 + signal.SIGTERM


def schema_of(columns: Iterable[str]) -> str:
    """The schema of a stream with these columns, for Spark."""
    return ", ".join(f"`{name}` {RECORD_COLUMNS[name]}" for name in columns)


SCHEMA = schema_of(record_columns(headers=False))
"""The columns unless an option says otherwise."""


class KohortDataSource(DataSource):
    """A Kafka topic, read by a member of a consumer group; see ``kohort.spark.source.options``."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "kohort"

    def schema(self) -> str:
        """The chosen columns of Spark's Kafka source; or the pieces of tasks."""
        end_silently()
        options = parse_options(self.options)
        return TASKS if options.pieces_only else schema_of(options.columns)

    def streamReader(self, schema: StructType) -> KohortStreamReader:
        """A reader for one query."""
        end_silently()
        return KohortStreamReader(dict(self.options))


@dataclass
class PiecesPartition(InputPartition):
    """The pieces that one read task reads; a warm-up task reads none."""

    task: int
    pieces: list[Piece] = field(default_factory=list)
    warm_up: bool = False


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader: driver side on the driver, ``read`` on executors."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options: SourceOptions = parse_options(options)
        self._made: SourceDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_made": None}

    @property
    def _driver(self) -> SourceDriver:
        if self._made is None:
            set_up_from_environment()
            self._made = make_driver(self._options)
            # Spark ends a query with SIGTERM, and calls stop() only if the handler raises.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _exit)
                # Ctrl-C may reach this process, too. The main process then ends the query.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        return self._made

    def initialOffset(self) -> dict[str, Any]:
        """See ``SourceDriver.initial_offset``."""
        return self._driver.initial_offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The option ``maxOffsetsPerTrigger``."""
        return ReadMaxRows(self._options.limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """See ``SourceDriver.prepare_available_now``."""
        self._driver.prepare_available_now()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """See ``SourceDriver.latest_offset``."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._driver.latest_offset(start, rows)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[PiecesPartition]:
        """See ``SourceDriver.read_plan``."""
        plan = self._driver.read_plan(end)
        tasks = [PiecesPartition(index, pieces) for index, pieces in enumerate(plan.tasks)]
        return tasks + [PiecesPartition(n, warm_up=True) for n in range(plan.warm_up_tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See ``kohort.spark.source.reading``. Runs on an executor, perhaps more than once."""
        assert isinstance(partition, PiecesPartition)

        from kohort.spark.source.reading import read_pieces, warm_up  # noqa: PLC0415

        if partition.warm_up:
            warm_up(self._options.client)
        if self._options.pieces_only:
            from kohort.spark.plain.reading import task_row  # noqa: PLC0415

            # Spark's next batch may give this worker the task that reads and writes.
            yield task_row(partition.pieces)
            return
        if partition.warm_up:
            return
        yield from read_pieces(
            self._options.client,
            partition.pieces,
            columns=self._options.columns,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )

    def stop(self) -> None:
        """Leave the group, if it was ever joined."""
        signalled, _Ending.begun = _Ending.begun, True
        # Spark may close the socket before it sends SIGTERM: it interrupts the thread that waits
        # for an answer. Spark's runner calls this method while it handles the error.
        closed = isinstance(sys.exc_info()[1], EOFError | BrokenPipeError)
        try:
            if self._made is not None:
                self._made.stop()
        finally:
            if signalled or closed:
                # Spark's runner would report the exit to a closed socket, and print that error.
                os._exit(_SIGTERM_STATUS)


def make_driver(options: SourceOptions) -> SourceDriver:
    """The driver of one query, before its join of the group.

    Raises:
        ConfigError: a setting is wrong, the ledger belongs to another group, or no topic matches.
    """
    # Executors do not need these modules.
    from kohort.client.membership import GroupMembership  # noqa: PLC0415
    from kohort.spark.ledgers.ledger import NONCE_BITS, SourceLedger, UnfencedLedger  # noqa: PLC0415
    from kohort.spark.source.driver import SourceDriver  # noqa: PLC0415
    from kohort.spark.source.kafka_topics import KafkaTopics  # noqa: PLC0415
    from kohort.spark.tables.table import open_ledger  # noqa: PLC0415

    topics = KafkaTopics(options.topics, options.client, options.pattern)
    ledger: SourceLedger = (
        UnfencedLedger(secrets.randbits(NONCE_BITS))
        if options.ledger is None
        else open_ledger(options.ledger, options.client.group_id)
    )
    copies = None
    if options.state_copies is not None and options.ledger is not None:
        from kohort.spark.state.following import StateFollower  # noqa: PLC0415

        copies = StateFollower(options.ledger, options.state_copies, ledger.states)
    return SourceDriver(
        GroupMembership(topics.names(), options.client),
        ledger,
        topics,
        options,
        clock=time.monotonic,
        sleep=time.sleep,
        copies=copies,
    )


class _Ending:
    # Not an Event: a second signal may arrive while the first one sets the Event. It would wait for
    # the lock of the Event for ever, while the member goes on with its heartbeats.
    begun = False


def _exit(signum: int, frame: FrameType | None) -> None:
    # Spark sometimes sends the signal more than once. A second exception would interrupt the
    # LeaveGroup request.
    if not _Ending.begun:
        _Ending.begun = True
        sys.exit(_SIGTERM_STATUS)
