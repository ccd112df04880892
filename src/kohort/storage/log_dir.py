"""The data directory: one broker's identity, its topics and their logs.

In: a path, topics to create and delete; out: open ``PartitionLog`` objects by topic and partition,
ids that are never given twice. One process at a time: the directory is locked.

What lies in it::

    .lock               held while a broker runs
    meta.properties     version of this layout, cluster id, node id, how often it was opened
    topics.json         every topic: name, id, partitions, settings; and those being deleted
    producer-ids.json   the first producer id not handed out yet
    TOPIC-N/            one log

Each of the small files is replaced as a whole, so a crash leaves the old or the new. A topic
exists from the moment ``topics.json`` names it, and no longer when it does not.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kohort.model.errors import ErrorCode
from kohort.storage.errors import CorruptLog, DirectoryInUse, RefusedTopic, StorageError
from kohort.storage.files import Files, Lock, read_file, write_file
from kohort.storage.log_config import LogConfig, log_config
from kohort.storage.meta import Meta, read_meta
from kohort.storage.partition_log import PartitionLog

OFFSETS_TOPIC: Final = "__consumer_offsets"
OFFSETS_TOPIC_CONFIGS: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "segment.bytes": "104857600",
}
"""Kafka's settings of its internal topic."""

MAX_PARTITIONS: Final = 10_000
"""Of one topic. Each holds a directory and a descriptor once it is written to."""

_PRODUCER_ID_BLOCK: Final = 1000
_OFFSETS_PREALLOCATE: Final = 256 << 10
_OFFSETS_MAX_MESSAGE_BYTES: Final = (1 << 31) - 1
"""What a batch may have at all: the coordinator is the only writer, and has bounds of its own."""
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_META: Final = "meta.properties"
_TOPICS: Final = "topics.json"
_PRODUCER_IDS: Final = "producer-ids.json"
_LOCK: Final = ".lock"

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as it is stored. ``topic_id`` has 16 bytes; ``configs`` are those that were given."""

    name: str
    topic_id: bytes
    partitions: int
    configs: Mapping[str, str]

    @property
    def internal(self) -> bool:
        """Whether it is the broker's own."""
        return self.name == OFFSETS_TOPIC


class LogDir:
    """An open data directory. All calls come from one thread."""

    __slots__ = (
        "_defaults",
        "_deleting",
        "_files",
        "_lock",
        "_logs",
        "_machine_restarted",
        "_meta",
        "_producer_ids_end",
        "_producer_ids_next",
        "_report",
        "_topics",
        "path",
    )

    def __init__(self, files: Files, path: str, lock: Lock, defaults: LogConfig, report: Report):
        self._files = files
        self._lock = lock
        self._defaults = defaults
        self._report = report
        self._logs: dict[tuple[str, int], PartitionLog] = {}
        self._topics: dict[str, Topic] = {}
        # (name, partitions) of topics that no longer exist, and whose files do.
        self._deleting: list[tuple[str, int]] = []
        self._meta = Meta(cluster_id="", node_id=-1, incarnation=0, boot_id="")
        self._machine_restarted = True
        self._producer_ids_next = 0
        self._producer_ids_end = 0
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
            node_id: must be the one the directory was made with.
            new_cluster_id: asked once, for a new directory.
            defaults: what topics have that were created without a setting.
            report: takes one sentence about everything that recovery cut or removed.

        Raises:
            DirectoryInUse: another process has it open.
            CorruptLog: a log is damaged.
            StorageError: a newer layout, another node's directory, or the disk.
        """
        path = path.rstrip("/")
        try:
            files.make_directory(path)
            lock = files.lock(f"{path}/{_LOCK}")
        except BlockingIOError as error:
            raise DirectoryInUse(
                f"data directory {path} is in use by another broker; stop that one, or choose "
                f"another directory"
            ) from error
        except OSError as error:
            raise StorageError(f"cannot use {path} as data directory: {error}") from error
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
        boot_id = self._files.boot_id()
        content = read_file(self._files, f"{self.path}/{_META}")
        if content is None:
            self._check_is_empty()
            stored = Meta(
                cluster_id=new_cluster_id(), node_id=node_id, incarnation=-1, boot_id=boot_id
            )
        else:
            stored = read_meta(content.decode(errors="replace"), f"{self.path}/{_META}")
        if stored.node_id != node_id:
            raise StorageError(
                f"data directory {self.path} belongs to node {stored.node_id}, and this is node "
                f"{node_id}; set node.id={stored.node_id}, or choose another directory"
            )
        self._machine_restarted = not boot_id or boot_id != stored.boot_id
        stored.incarnation += 1
        self._meta = stored
        # Written before any log: the epoch of what will be appended must never have been used.
        # The boot id stays the old one until all logs are recovered, since a second kill during
        # recovery must not make the first crash forgotten.
        self._write_meta()
        self._read_topics()
        self._finish_deleting()
        for topic in self._topics.values():
            for partition in range(topic.partitions):
                directory = self._directory(topic.name, partition)
                if not self._files.exists(directory):
                    raise CorruptLog(
                        f"{directory} is missing, and {self.path}/{_TOPICS} names the topic; "
                        f"restore the directory, or make it empty to lose its records"
                    )
                self._open_log(topic, partition)
        stored.boot_id = boot_id
        self._write_meta()
        content = read_file(self._files, f"{self.path}/{_PRODUCER_IDS}")
        if content is not None:
            self._producer_ids_next = self._producer_ids_end = int(json.loads(content)["next"])

    def _check_is_empty(self) -> None:
        others = [
            name
            for name in self._files.list_directory(self.path)
            if name != _LOCK and not name.endswith(".tmp")
        ]
        if others:
            raise StorageError(
                f"{self.path} has no {_META} and is not empty ({others[0]} is in it); choose an "
                f"empty directory, or one that a broker has made"
            )

    # Identity

    @property
    def cluster_id(self) -> str:
        """Made with the directory."""
        return self._meta.cluster_id

    @property
    def node_id(self) -> int:
        """The broker's id."""
        return self._meta.node_id

    @property
    def incarnation(self) -> int:
        """How often the directory was opened before; the leader epoch of all partitions now."""
        return self._meta.incarnation

    def _write_meta(self) -> None:
        self._write(_META, self._meta.to_text())

    def _write(self, name: str, content: str) -> None:
        write_file(self._files, f"{self.path}/{name}", content.encode())
        self._files.sync_directory(self.path)

    def allocate_producer_id(self) -> int:
        """A producer id that was never given before, also not by an earlier life of this broker.

        Raises:
            StorageError: the disk.
        """
        if self._producer_ids_next == self._producer_ids_end:
            end = self._producer_ids_next + _PRODUCER_ID_BLOCK
            try:
                self._write(_PRODUCER_IDS, json.dumps({"version": 1, "next": end}))
            except OSError as error:
                raise StorageError(f"cannot reserve producer ids: {error}") from error
            self._producer_ids_end = end
        self._producer_ids_next += 1
        return self._producer_ids_next - 1

    # Topics

    @property
    def topics(self) -> Mapping[str, Topic]:
        """All topics by name."""
        return self._topics

    def log(self, topic: str, partition: int) -> PartitionLog:
        """The log of a partition.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
        """
        log = self._logs.get((topic, partition))
        if log is None:
            known = self._topics.get(topic)
            has = "no such topic" if known is None else f"the topic has {known.partitions}"
            raise RefusedTopic(
                f"partition {partition} of topic {topic!r} does not exist: {has}",
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return log

    def logs(self) -> Iterator[PartitionLog]:
        """Every open log."""
        return iter(self._logs.values())

    def config_of(self, topic: Topic) -> LogConfig:
        """All settings of a topic, given or not.

        Raises:
            RefusedTopic: INVALID_CONFIG.
        """
        config = log_config(topic.configs, self._defaults)
        if topic.internal:
            config = replace(
                config,
                sync_before_answer=True,
                preallocate_bytes=_OFFSETS_PREALLOCATE,
                max_message_bytes=_OFFSETS_MAX_MESSAGE_BYTES,
            )
        return config

    def check_new_topic(self, topic: Topic) -> None:
        """Whether ``create_topic`` would accept this.

        Raises:
            RefusedTopic: with Kafka's code for the rule that it breaks.
        """
        name = topic.name
        if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
            raise RefusedTopic(
                f"topic name {name!r}: 1 to 249 of letters, digits, '.', '_' and '-' expected, and "
                f"not '.' or '..'",
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
        if name in self._topics:
            raise RefusedTopic(f"topic {name!r} already exists", ErrorCode.TOPIC_ALREADY_EXISTS)
        if not 1 <= topic.partitions <= MAX_PARTITIONS:
            raise RefusedTopic(
                f"{topic.partitions} partitions; from 1 to {MAX_PARTITIONS} are possible",
                ErrorCode.INVALID_PARTITIONS,
            )
        self.config_of(topic)

    def create_topic(self, topic: Topic) -> None:
        """Create a topic and open its logs. Durable on return.

        Raises:
            RefusedTopic: as ``check_new_topic``.
            StorageError: the disk; the topic does not exist then.
        """
        self.check_new_topic(topic)
        self._create_logs(topic, range(topic.partitions))

    def create_partitions(self, name: str, partitions: int) -> None:
        """Let a topic have ``partitions`` partitions in all. Durable on return.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_PARTITIONS when it has as many.
            StorageError: the disk; the topic is as before then.
        """
        topic = self._topic(name)
        if not topic.partitions < partitions <= MAX_PARTITIONS:
            raise RefusedTopic(
                f"topic {name!r} has {topic.partitions} partitions; it can only get more, up to "
                f"{MAX_PARTITIONS}, and {partitions} were asked for",
                ErrorCode.INVALID_PARTITIONS,
            )
        self._create_logs(
            replace(topic, partitions=partitions), range(topic.partitions, partitions)
        )

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise RefusedTopic(
                f"topic {name!r} does not exist", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        return topic

    def _create_logs(self, topic: Topic, partitions: range) -> None:
        before = self._topics.get(topic.name)
        try:
            # A directory of that name may be on its way out.
            self._finish_deleting()
            for partition in partitions:
                self._make_directory(self._directory(topic.name, partition))
            self._files.sync_directory(self.path)
            self._topics[topic.name] = topic
            self._write_topics()
        except OSError as error:
            self._topics.pop(topic.name, None)
            if before is not None:
                self._topics[topic.name] = before
            raise StorageError(f"cannot create topic {topic.name!r}: {error}") from error
        for partition in partitions:
            self._open_log(topic, partition)

    def _make_directory(self, directory: str) -> None:
        # One may be there, empty, from a creation that a crash cut short.
        if self._files.exists(directory) and self._files.list_directory(directory):
            raise StorageError(
                f"{directory} has files in it, and no topic of that name exists; move it away"
            )
        self._files.make_directory(directory)

    def delete_topic(self, name: str) -> Topic:
        """Delete a topic and its records. Durable on return.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
            StorageError: the disk; the topic still exists then, or it is deleted on next start.
        """
        topic = self._topic(name)
        del self._topics[name]
        try:
            self._deleting.append((name, topic.partitions))
            self._write_topics()
        except OSError as error:
            self._topics[name] = topic
            self._deleting.pop()
            raise StorageError(f"cannot delete topic {name!r}: {error}") from error
        for partition in range(topic.partitions):
            self._logs.pop((name, partition)).abandon()
        try:
            self._finish_deleting()
        except OSError as error:
            self._report(f"topic {name} is deleted, its files will be on next start: {error}")
        return topic

    def _finish_deleting(self) -> None:
        if not self._deleting:
            return
        for name, partitions in self._deleting:
            for partition in range(partitions):
                directory = self._directory(name, partition)
                if self._files.exists(directory):
                    for file in self._files.list_directory(directory):
                        self._files.remove(f"{directory}/{file}")
                    self._files.remove_directory(directory)
        self._files.sync_directory(self.path)
        self._deleting.clear()
        self._write_topics()

    def _directory(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def _open_log(self, topic: Topic, partition: int) -> None:
        self._logs[topic.name, partition] = PartitionLog.open(
            self._files,
            self._directory(topic.name, partition),
            self.config_of(topic),
            leader_epoch=self.incarnation,
            machine_restarted=self._machine_restarted,
            report=self._report,
        )

    def _read_topics(self) -> None:
        content = read_file(self._files, f"{self.path}/{_TOPICS}")
        if content is None:
            return
        try:
            stored: dict[str, Any] = json.loads(content)
            for entry in stored["topics"]:
                topic = Topic(
                    name=entry["name"],
                    topic_id=bytes.fromhex(entry["topic_id"]),
                    partitions=entry["partitions"],
                    configs=entry["configs"],
                )
                self._topics[topic.name] = topic
            self._deleting = [(name, partitions) for name, partitions in stored["deleting"]]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptLog(
                f"{self.path}/{_TOPICS} cannot be read: {error!r}; restore it"
            ) from error

    def _write_topics(self) -> None:
        stored = {
            "version": 1,
            "topics": [
                {
                    "name": topic.name,
                    "topic_id": topic.topic_id.hex(),
                    "partitions": topic.partitions,
                    "configs": dict(topic.configs),
                }
                for topic in self._topics.values()
            ],
            "deleting": self._deleting,
        }
        self._write(_TOPICS, json.dumps(stored, indent=1))

    # The end

    def close(self) -> None:
        """Make every log durable, close it, release the lock; the next start reads no batch.

        Raises:
            StorageError: a log could not be synced; all the others were, and the lock is released.
        """
        failures: list[StorageError] = []
        for log in self._logs.values():
            try:
                log.close()
            except StorageError as error:
                failures.append(error)
        self.abandon()
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        """Give back files and lock as they are, without a sync."""
        for log in self._logs.values():
            with contextlib.suppress(OSError):
                log.abandon()
        self._lock.release()
