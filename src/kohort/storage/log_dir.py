"""The data directory: one broker's identity, its topics and their logs.

In: a path, topics to create and delete. Out: open ``PartitionLog`` objects by topic and partition,
and ids that are never used twice. Must not know: requests, clients. One process at a time uses it:
the directory is locked. Its content::

    .lock               locked while a broker runs
    meta.properties     version of this layout, cluster id, node id, number of starts
    topics.json         every topic: name, id, partitions, settings; and topics being deleted
    producer-ids.json   the first producer id that was not given out
    start-offsets.json  start offsets of logs with deleted records
    TOPIC-N/            one log
    0.N-delete/         the rest of a log of a deleted topic

Each of the small files is replaced as a whole, so a crash leaves the old or the new content. A
topic exists exactly while ``topics.json`` names it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kohort.model.errors import ErrorCode
from kohort.storage.errors import CorruptLog, DirectoryInUse, RefusedTopic, StorageError, disk
from kohort.storage.files import Files, Lock, make_durable_directory, read_file, replace_durably
from kohort.storage.leftovers import Leftovers
from kohort.storage.log_config import LogConfig
from kohort.storage.meta import LOCK, META, Meta, check_is_ours, read_meta
from kohort.storage.partition_log import PartitionLog
from kohort.storage.producer_ids import ProducerIds
from kohort.storage.start_offsets import StartOffsets
from kohort.storage.topic_table import (
    MAX_PARTITIONS,
    NO_TOPIC_ID,
    OFFSETS_TOPIC,
    OFFSETS_TOPIC_CONFIGS,
    TOPICS,
    StoredTopics,
    Topic,
    check_topic,
    config_of,
)

__all__ = ["OFFSETS_TOPIC", "OFFSETS_TOPIC_CONFIGS", "LogDir", "Topic"]

_ALL: Final = 1 << 31

Report = Callable[[str], None]
Run = Callable[
    [Callable[[PartitionLog], StorageError | None], Iterable[PartitionLog]],
    Iterable[StorageError | None],
]
"""Calls a function for each log, such as ``map``."""


class LogDir:
    """An open data directory. All calls come from one thread.

    Attributes:
        files: the disk.
        path: of the directory.
        meta: its identity; the incarnation is the present leader epoch of all partitions, too.
        producer_ids: gives ids that were never used before.
        leftovers: the directories of deleted topics.
    """

    __slots__ = (
        "_defaults",
        "_lock",
        "_logs",
        "_machine_restarted",
        "_report",
        "_starts",
        "_table",
        "files",
        "leftovers",
        "meta",
        "path",
        "producer_ids",
    )

    def __init__(self, files: Files, path: str, lock: Lock, defaults: LogConfig, report: Report):
        self.files = files
        self._lock = lock
        self._defaults = defaults
        self._report = report
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._table: StoredTopics
        self.leftovers: Leftovers
        self.meta = Meta(cluster_id="", node_id=-1, incarnation=0, boot_id="")
        self._machine_restarted = True
        self.producer_ids: ProducerIds
        self._starts: StartOffsets
        self.path = path

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        *,
        node_id: int,
        new_cluster_id: Callable[[], str],
        defaults: LogConfig | None = None,
        report: Report,
    ) -> LogDir:
        """Lock the directory, make it if it is new, recover every log in it.

        Args:
            files: the disk.
            path: absolute path of the directory.
            node_id: must be the node id of the directory's first start.
            new_cluster_id: called once, for a new directory.
            defaults: values for settings that a topic does not set.
            report: receives a sentence about each part that recovery cut or removed.

        Raises:
            DirectoryInUse: another process has it open.
            CorruptLog: a log is damaged.
            StorageError: a newer layout, another node's directory, or the disk.
        """
        path = path.rstrip("/")
        try:
            files.make_directory(path)
            names = files.list_directory(path)
            check_is_ours(names, path)
            if META not in names:
                make_durable_directory(files, path)
            lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise DirectoryInUse(
                f"data directory {path} is in use by another broker; stop that one, or choose "
                f"another directory"
            ) from error
        except OSError as error:
            raise StorageError(f"cannot use {path} as data directory: {error.strerror}") from error
        log_dir = cls(files, path, lock, defaults or LogConfig(), report)
        try:
            log_dir._open(node_id, new_cluster_id)
        except OSError as error:
            log_dir.abandon()
            raise StorageError(f"cannot open data directory {path}: {error}") from error
        except BaseException:
            log_dir.abandon()
            raise
        return log_dir

    def _open(self, node_id: int, new_cluster_id: Callable[[], str]) -> None:
        boot_id = self.files.boot_id()
        content = read_file(self.files, f"{self.path}/{META}")
        if content is None:
            stored = Meta(
                cluster_id=new_cluster_id(), node_id=node_id, incarnation=-1, boot_id=boot_id
            )
        else:
            stored = read_meta(content.decode(errors="replace"), f"{self.path}/{META}")
        if stored.node_id != node_id:
            raise StorageError(
                f"data directory {self.path} belongs to node {stored.node_id}, and this is node "
                f"{node_id}; set node.id={stored.node_id}, or choose another directory"
            )
        self._table = StoredTopics(self.files, self.path)
        self._starts = StartOffsets(self.files, self.path)
        self._machine_restarted = not boot_id or boot_id != stored.boot_id
        stored.incarnation += 1
        self.meta = stored
        # Written before any log opens: new batches must get an epoch that was never used. The boot
        # id stays the old one until all logs are recovered: a kill during recovery must not hide an
        # earlier crash of the machine.
        self._write_meta()
        self.leftovers = Leftovers(self.files, self.path)
        for name, partitions in self._table.deleted:
            self.leftovers.leave(self._directories(name, partitions))
        self.put_aside(_ALL)
        for topic in self.topics.values():
            config = self.config_of(topic)
            for partition in range(topic.partitions):
                directory = self._directory(topic.name, partition)
                if not self.files.exists(directory):
                    raise CorruptLog(
                        f"{directory} is missing, and {self.path}/{TOPICS} names the topic; "
                        f"restore the directory, or make it empty to lose its records"
                    )
                self._open_log(topic, partition, config)
        self._outlive_the_logs()
        stored.boot_id = boot_id
        self._write_meta()
        self.producer_ids = ProducerIds(self.files, self.path)

    def _outlive_the_logs(self) -> None:
        """Choose a new leader epoch if a log was written in the present epoch or a later one.

        That happens after a restore of an older ``meta.properties``. One epoch must not name two
        lives.
        """
        found = max((log.epoch_found for log in self._logs.values()), default=-1)
        if found < self.meta.incarnation:
            return
        self._report(
            f"{self.path}/{META} is older than the logs, which were written in leader epoch "
            f"{found}; this start uses leader epoch {found + 1}"
        )
        self.meta.incarnation = found + 1
        self._write_meta()
        for log in self._logs.values():
            log.lead(self.meta.incarnation)

    def _write_meta(self) -> None:
        replace_durably(self.files, self.path, META, self.meta.to_text())

    # Topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return self._table.topics

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
        """
        log = self._logs.get((topic, partition))
        if log is None:
            known = self.topics.get(topic)
            has = "no such topic" if known is None else f"the topic has {known.partitions}"
            raise RefusedTopic(
                f"partition {partition} of topic {topic!r} does not exist: {has}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return log

    @property
    def log_count(self) -> int:
        """Number of open logs."""
        return len(self._logs)

    def logs(self) -> Iterator[PartitionLog]:
        """All open logs."""
        return iter(self._logs.values())

    def config_of(self, topic: Topic) -> LogConfig:
        """All settings of a topic, defaults included.

        Raises:
            RefusedTopic: INVALID_CONFIG.
        """
        return config_of(topic, self._defaults)

    def check_new_topic(self, topic: Topic) -> None:
        """Return if ``create_topic`` would accept this topic.

        Raises:
            RefusedTopic: with Kafka's code for the broken rule.
        """
        if topic.name in self.topics:
            raise RefusedTopic(
                f"topic {topic.name!r} already exists", ErrorCode.TOPIC_ALREADY_EXISTS
            )
        check_topic(topic)
        self.config_of(topic)

    def create_topic(self, topic: Topic) -> None:
        """Create a topic and open its logs. Durable on return.

        Raises:
            RefusedTopic: as ``check_new_topic``.
            StorageError: the disk; the topic does not exist then.
        """
        self.check_new_topic(topic)
        self._create_logs(topic, range(topic.partitions))

    def create_partitions(
        self, name: str, partitions: int, replicas: tuple[tuple[int, ...], ...] = ()
    ) -> None:
        """Extend a topic to ``partitions`` partitions in all. Durable on return.

        ``replicas`` names the nodes of all partitions, if a client chose the nodes of any.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_PARTITIONS unless it grows.
            StorageError: the disk; the topic is unchanged.
        """
        topic = self.topic(name)
        if not topic.partitions < partitions <= MAX_PARTITIONS:
            raise RefusedTopic(
                f"topic {name!r} has {topic.partitions} partitions; it can only get more, up to "
                f"{MAX_PARTITIONS}, and {partitions} were asked for",
                ErrorCode.INVALID_PARTITIONS,
            )
        self._create_logs(
            replace(topic, partitions=partitions, replicas=replicas),
            range(topic.partitions, partitions),
        )

    def topic(self, name: str) -> Topic:
        """A topic.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
        """
        topic = self.topics.get(name)
        if topic is None:
            raise RefusedTopic(
                f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return topic

    def _create_logs(self, topic: Topic, partitions: range) -> None:
        with disk(f"cannot create topic {topic.name!r}"):
            # A deleted topic may still have a directory of that name.
            self.put_aside(_ALL)
            self._starts.forget([f"{topic.name}-{partition}" for partition in partitions])
            for partition in partitions:
                self._make_directory(self._directory(topic.name, partition))
            self.files.sync_directory(self.path)
            self._table.put(topic)
        config = self.config_of(topic)
        for partition in partitions:
            self._open_log(topic, partition, config)

    def _make_directory(self, directory: str) -> None:
        # A crash during an earlier creation may have left an empty one.
        if self.files.exists(directory) and self.files.list_directory(directory):
            raise StorageError(
                f"{directory} has files in it, and no topic of that name exists; move it away"
            )
        self.files.make_directory(directory)

    def alter_topic(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace all settings of a topic. Durable, and in force, on return.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_CONFIG.
            StorageError: the disk; the topic is unchanged.
        """
        topic = replace(self.topic(name), configs=dict(configs))
        config = self.config_of(topic)
        with disk(f"cannot store the settings of topic {name!r}"):
            self._table.put(topic)
        for partition in range(topic.partitions):
            self._logs[name, partition].config = config

    def give_ids(self, new_topic_id: Callable[[], bytes]) -> None:
        """Give an id to every topic from the time before topics had ids. Durable on return.

        Raises:
            StorageError: the disk.
        """
        without = [topic for topic in self.topics.values() if topic.topic_id == NO_TOPIC_ID]
        if not without:
            return
        with disk("cannot store the ids of topics"):
            self._table.put(*(replace(topic, topic_id=new_topic_id()) for topic in without))

    def delete_records(self, topic: str, partition: int, offset: int) -> None:
        """Start a log at ``offset``, unless it starts later already. Durable on return.

        ``offset`` must not exceed the log's durable end, or a crash could leave a log that starts
        after its end.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
            OffsetOutOfRange: the log ends before ``offset``.
            StorageError: the disk.
        """
        log = self.log(topic, partition)
        log.check_deletion(offset)
        if offset <= log.log_start_offset:
            return
        with disk(f"cannot store where {log.name} begins"):
            self._starts.set(log.name, offset)
        log.delete_before(offset)

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic and its records. Durable on return, although its files are still there.

        ``put_aside`` and then ``remove_directories`` remove the files, otherwise the next start
        does.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
            StorageError: the disk; the topic still exists then.
        """
        topic = self.topic(name)
        with disk(f"cannot delete topic {name!r}"):
            self._table.delete(topic)
        for partition in range(topic.partitions):
            self._logs.pop((name, partition)).abandon()
        self.leftovers.leave(self._directories(topic.name, topic.partitions))
        return topic

    def put_aside(self, most: int) -> bool:
        """Free the names of up to ``most`` directories of deleted topics.

        Returns:
            True when all are free.

        Raises:
            StorageError: the disk.
        """
        with disk("cannot put deleted topics aside"):
            done = self.leftovers.put_aside(most)
            if done and self._table.deleted:
                self.files.sync_directory(self.path)
                self._table.forget_deleted()
        return done

    def _directories(self, name: str, partitions: int) -> list[str]:
        return [self._directory(name, partition) for partition in range(partitions)]

    def _directory(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def _open_log(self, topic: Topic, partition: int, config: LogConfig) -> None:
        self._logs[topic.name, partition] = PartitionLog.open(
            self.files,
            self._directory(topic.name, partition),
            config,
            leader_epoch=self.meta.incarnation,
            machine_restarted=self._machine_restarted,
            report=self._report,
            start_offset=self._starts.of(f"{topic.name}-{partition}"),
            # All names in this folder were synced, by `_create_logs` or with meta.properties.
            directory_is_durable=True,
        )

    # Closing

    def close(self, run: Run = map) -> None:
        """Make every log durable, close it, release the lock. The next start reads no batch.

        Args:
            run: calls a function for each log, as ``map`` does; perhaps in several threads.

        Raises:
            StorageError: a log could not be synced. The other logs were synced, the lock is free.
        """
        failures = [failure for failure in run(_close, self._logs.values()) if failure is not None]
        self.abandon()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Close all files and release the lock without a sync."""
        for log in self._logs.values():
            with contextlib.suppress(OSError):
                log.abandon()
        self._lock.release()


def _close(log: PartitionLog) -> StorageError | None:
    """The failure of closing a log."""
    try:
        log.close()
    except StorageError as error:
        return error
    return None
