"""The topics of this broker: creation, look-up, growth and deletion.

In: names and numbers from requests. Out: topics, logs, or a ``RefusedTopic`` with Kafka's code.
Must not know: requests, files. All changes are durable on return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from kohort.broker.limits import BROKER_PARTITIONS
from kohort.host.entropy import new_topic_id
from kohort.host.settings import BrokerSettings
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.storage.errors import RefusedTopic
from kohort.storage.log_config import FOREVER, LogConfig
from kohort.storage.log_dir import OFFSETS_TOPIC, OFFSETS_TOPIC_CONFIGS, LogDir, Topic
from kohort.storage.partition_log import PartitionLog
from kohort.storage.topic_table import why_illegal

Deleted = Callable[[str, int], None]
"""Called with the name of a deleted topic and its number of partitions."""


def log_defaults(settings: BrokerSettings) -> LogConfig:
    """The settings of topics that were created without any."""
    return LogConfig(
        segment_bytes=settings.log_segment_bytes,
        segment_ms=settings.roll_ms,
        index_interval_bytes=settings.log_index_interval_bytes,
        retention_ms=settings.retention_ms,
        retention_bytes=settings.log_retention_bytes,
        delete_retention_ms=settings.log_cleaner_delete_retention_ms,
        min_cleanable_dirty_ratio=settings.log_cleaner_min_cleanable_ratio,
        max_message_bytes=settings.message_max_bytes,
        flush_messages=settings.log_flush_interval_messages,
        flush_ms=(
            FOREVER if settings.log_flush_interval_ms is None else settings.log_flush_interval_ms
        ),
        timestamp_before_max_ms=settings.log_message_timestamp_before_max_ms,
        timestamp_after_max_ms=settings.log_message_timestamp_after_max_ms,
        log_append_time=settings.log_message_timestamp_type == "LogAppendTime",
        delete="delete" in settings.log_cleanup_policy,
        compact="compact" in settings.log_cleanup_policy,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
    )


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """The topic with the same name but for dots in place of underscores, if there is one.

    Kafka refuses such a pair, since metric names write a dot as an underscore.
    """
    flat = name.replace(".", "_")
    if flat == name and "_" not in name:
        return None
    return next(
        (other for other in existing if other != name and other.replace(".", "_") == flat), None
    )


class Topics:
    """Topics by Kafka's rules, over the logs of one data directory."""

    def __init__(self, log_dir: LogDir, settings: BrokerSettings) -> None:
        self._log_dir = log_dir
        self._settings = settings
        log_dir.give_ids(new_topic_id)
        self._names = {topic.topic_id: name for name, topic in log_dir.topics.items()}
        self._deleted: list[Deleted] = []
        self._sized: list[Callable[[str, int], None]] = []

    def on_deleted(self, listener: Deleted) -> None:
        """Call ``listener`` for every topic that is deleted from now on."""
        self._deleted.append(listener)

    def on_sized(self, listener: Callable[[str, int], None]) -> None:
        """Call ``listener`` with the partitions of every topic, now and when they change."""
        self._sized.append(listener)
        for topic in self.all():
            listener(topic.name, topic.partitions)

    def _tell_size(self, name: str, partitions: int) -> None:
        for listener in self._sized:
            listener(name, partitions)

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        return [topic for _, topic in sorted(self._log_dir.topics.items())]

    def get(self, name: str) -> Topic | None:
        """A topic, or None."""
        return self._log_dir.topics.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic that has this id, or None."""
        return self._names.get(topic_id)

    def id_of(self, name: str) -> bytes | None:
        """The id of a topic, or None."""
        topic = self._log_dir.topics.get(name)
        return None if topic is None else topic.topic_id

    def exists(self, partition: TopicPartition) -> bool:
        """Whether there is such a partition."""
        name, number = partition
        topic = self._log_dir.topics.get(name)
        return topic is not None and 0 <= number < topic.partitions

    def log(self, partition: TopicPartition) -> PartitionLog:
        """The log of a partition.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._log_dir.log(partition.topic, partition.partition)

    def log_for_clients(self, partition: TopicPartition) -> PartitionLog:
        """The log of a partition that clients may write to.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION, or INVALID_TOPIC_EXCEPTION for an internal
                topic.
        """
        if partition.topic == OFFSETS_TOPIC:
            raise RefusedTopic(
                f"{partition.topic} is the broker's own: clients cannot write to it",
                ErrorCode.INVALID_TOPIC_EXCEPTION,
            )
        return self.log(partition)

    @property
    def log_count(self) -> int:
        """Number of the logs; those of the internal topic count before it is made."""
        missing = self._log_dir.topics.get(OFFSETS_TOPIC) is None
        return self._log_dir.log_count + missing * self._settings.offsets_topic_num_partitions

    def offsets_topic(self) -> Topic:
        """The internal topic of groups and offsets, made when it is first needed.

        Raises:
            StorageError: it could not be made.
        """
        topic = self.get(OFFSETS_TOPIC)
        if topic is None:
            segment_bytes = str(self._settings.offsets_topic_segment_bytes)
            topic = Topic(
                name=OFFSETS_TOPIC,
                topic_id=new_topic_id(),
                partitions=self._settings.offsets_topic_num_partitions,
                configs={**OFFSETS_TOPIC_CONFIGS, "segment.bytes": segment_bytes},
                replication_factor=self._settings.offsets_topic_replication_factor,
            )
            self._create(topic)
        return topic

    def create(
        self,
        name: str,
        partitions: int,
        configs: Mapping[str, str],
        *,
        replication_factor: int = 1,
        replicas: tuple[tuple[int, ...], ...] = (),
        validate_only: bool = False,
    ) -> Topic:
        """Create a topic, or only find out whether it could be.

        Raises:
            RefusedTopic: the name, the number of partitions or a setting is not possible.
            StorageError: the disk.
        """
        topic = Topic(
            name=name,
            topic_id=new_topic_id(),
            partitions=partitions,
            configs=dict(configs),
            replication_factor=replication_factor,
            replicas=replicas,
        )
        self._check_name(name)
        self._check_total(partitions)
        self._log_dir.check_new_topic(topic)
        if not validate_only:
            self._create(topic)
            self._tell_size(name, partitions)
        return topic

    def _create(self, topic: Topic) -> None:
        self._log_dir.create_topic(topic)
        self._names[topic.topic_id] = topic.name

    def check_name(self, name: str) -> ErrorCode | None:
        """The code with which a new topic of this name would be refused, or None."""
        try:
            self._check_name(name)
        except RefusedTopic as refused:
            return refused.code
        return None

    def _check_name(self, name: str) -> None:
        reason = why_illegal(name)
        if reason is None and name not in self._log_dir.topics:
            other = colliding(name, self._log_dir.topics)
            if other is not None:
                reason = f"topic {name!r} collides with {other!r}: '.' and '_' count as the same"
        if reason is not None:
            raise RefusedTopic(reason, ErrorCode.INVALID_TOPIC_EXCEPTION)

    def _check_total(self, added: int) -> None:
        total = sum(topic.partitions for topic in self._log_dir.topics.values())
        if total + added > BROKER_PARTITIONS:
            raise RefusedTopic(
                f"{added} partitions more than the {total} there are: one broker has at most "
                f"{BROKER_PARTITIONS}",
                ErrorCode.POLICY_VIOLATION,
            )

    def grow(
        self,
        name: str,
        partitions: int,
        *,
        replicas: tuple[tuple[int, ...], ...] = (),
        validate_only: bool = False,
    ) -> None:
        """Raise a topic's number of partitions; ``replicas`` as ``Topic`` has them.

        Raises:
            RefusedTopic: no such topic, not more than it has, or the broker's own.
            StorageError: the disk.
        """
        topic = self.existing(name)
        self._refuse_internal(name)
        if partitions <= topic.partitions:
            raise RefusedTopic(
                f"topic {name!r} has {topic.partitions} partitions, {partitions} would not be more",
                ErrorCode.INVALID_PARTITIONS,
            )
        self._check_total(partitions - topic.partitions)
        if not validate_only:
            self._log_dir.create_partitions(name, partitions, replicas)
            self._tell_size(name, partitions)

    def delete(self, name: str) -> None:
        """Delete a topic with its records; listeners are told.

        Raises:
            RefusedTopic: no such topic, the broker's own, or deletion is switched off.
            StorageError: the disk.
        """
        if not self._settings.delete_topic_enable:
            raise RefusedTopic("delete.topic.enable is false", ErrorCode.TOPIC_DELETION_DISABLED)
        self.existing(name)
        self._refuse_internal(name)
        deleted = self._log_dir.delete_topic(name)
        del self._names[deleted.topic_id]
        self._tell_size(name, 0)
        for listener in self._deleted:
            listener(name, deleted.partitions)

    def alter(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> None:
        """Give a topic these settings and no others, or only find out whether it could have them.

        Raises:
            RefusedTopic: no such topic, the broker's own, or a setting is not possible.
            StorageError: the disk.
        """
        topic = self.existing(name)
        self._refuse_internal(name)
        self._log_dir.config_of(replace(topic, configs=dict(configs)))
        if not validate_only:
            self._log_dir.alter_topic(name, configs)

    def delete_records(self, partition: TopicPartition, offset: int) -> None:
        """Let a partition begin at ``offset``, which must be durable.

        Raises:
            RefusedTopic: no such partition.
            StorageError: the log does not reach that far, or the disk.
        """
        self._log_dir.delete_records(partition.topic, partition.partition, offset)

    def existing(self, name: str) -> Topic:
        """A topic.

        Raises:
            RefusedTopic: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._log_dir.topic(name)

    def _refuse_internal(self, name: str) -> None:
        if name == OFFSETS_TOPIC:
            raise RefusedTopic(
                f"{name} is the broker's own and stays as it is", ErrorCode.INVALID_REQUEST
            )
