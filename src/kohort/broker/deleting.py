"""Deletions that end after or before their answer: records that a client deletes, topics' files.

In: DeleteRecords requests, deleted topics. Out: one answer for each request, when the new start of
its logs is on disk; directories removed in a thread. Must not know: connections. To remove the
files of thousands of partitions takes seconds, and no client waits for that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from kohort.broker.flusher import Flusher
from kohort.broker.state import BrokerState
from kohort.model.deadlines import Deadlines
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.storage.errors import RefusedTopic, StorageError
from kohort.storage.leftovers import remove_directories
from kohort.storage.log_dir import LogDir
from kohort.storage.topic_table import OFFSETS_TOPIC
from kohort.wire.messages.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

logger = logging.getLogger(__name__)

Answer = Callable[[DeleteRecordsResponse], None]

ALL_RECORDS: Final = -1
"""In place of an offset: everything up to the high watermark."""

DIRECTORIES_PER_TURN: Final = 50
"""Directories renamed in one turn of the loop: less than 5 ms."""

PAUSE_BETWEEN_TURNS_MS: Final = Millis(5)


class DeletingRecords:
    """Serves DeleteRecords (KIP-107)."""

    def __init__(self, flusher: Flusher) -> None:
        self._flusher = flusher

    def serve(self, node: BrokerState, request: DeleteRecordsRequest, answer: Answer) -> None:
        """Raise where partitions begin; ``answer`` is called once, when that is on disk.

        What stays must be durable before what goes is gone: after a crash a log must not begin
        after its end.
        """
        response = DeleteRecordsResponse()
        waiting = 1

        def one_less() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                answer(response)

        for topic in request.topics:
            rows = []
            # Of a partition that is named twice the last counts, as in Kafka.
            for index, offset in {p.partition_index: p.offset for p in topic.partitions}.items():
                row = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
                rows.append(row)
                waiting += 1
                self._delete(node, TopicPartition(topic.name, index), offset, row, one_less)
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=rows))
        one_less()

    def _delete(
        self,
        node: BrokerState,
        partition: TopicPartition,
        asked: int,
        row: DeleteRecordsPartitionResult,
        done: Callable[[], None],
    ) -> None:
        try:
            log = node.topics.log(partition)
            if partition.topic == OFFSETS_TOPIC:
                raise RefusedTopic(
                    f"records of {partition.topic} are the broker's own",
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                )
            node.check_serves(partition, log)
            if not log.config.delete:
                raise RefusedTopic(
                    f"{log.name}: records of a topic with cleanup.policy=compact cannot be deleted",
                    ErrorCode.POLICY_VIOLATION,
                )
            offset = log.high_watermark if asked == ALL_RECORDS else asked
            log.check_deletion(offset)
        except StorageError as refused:
            row.error_code = refused.code
            done()
            return

        def on_disk(failure: StorageError | None) -> None:
            try:
                if failure is not None:
                    raise failure
                node.topics.delete_records(partition, offset)
                row.low_watermark = log.log_start_offset
            except StorageError as refused:
                logger.warning("%s", refused)
                row.error_code = refused.code
            done()

        self._flusher.wait(log, offset - 1, on_disk)


class DeletionSweep:
    """Takes away what is left of deleted topics: renamed in slices, removed in a thread."""

    def __init__(
        self,
        chores: Deadlines[Callable[[Instant], None]],
        log_dir: LogDir,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
    ) -> None:
        self._chores = chores
        self._log_dir = log_dir
        self._loop = loop
        self._executor = executor
        self._stopped = False

    def start(self, now: Instant) -> None:
        """Look for directories to delete."""
        self._chores.arm(self._put_aside, now)

    def stop(self) -> None:
        """End soon; the next start removes the rest."""
        self._stopped = True

    def _put_aside(self, now: Instant) -> None:
        try:
            if not self._log_dir.put_aside(DIRECTORIES_PER_TURN):
                self._chores.arm(self._put_aside, after(now, PAUSE_BETWEEN_TURNS_MS))
                return
        except StorageError as error:
            logger.error("%s; the next start will", error)
        directories = self._log_dir.leftovers.take_removable()
        if directories and not self._stopped:
            running = self._loop.run_in_executor(self._executor, self._remove, directories)
            running.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _remove(self, directories: list[str]) -> None:
        try:
            remove_directories(self._log_dir.files, directories, lambda: self._stopped)
        except OSError as error:
            logger.error(
                "cannot remove what is left of deleted topics, the next start will: %s", error
            )
