"""A mirror: a group of workers that copies topics from one cluster to another.

In: topics of the source. Out: the same records in the target, in the same partitions and order; the
offsets of the source are committed after acknowledged records. Must not know: the group protocol.

Workers are consumers, so their partitions move as those of any consumer: with waits, limits of
moves, drains, and static members. A rolling bounce of static workers causes no rebalance (KIP-345).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from kohort.client import arguments
from kohort.client.admin import Admin
from kohort.client.config import ClientSettings, parse_client_settings
from kohort.client.consumer import Consumer
from kohort.client.errors import ClientError, RequestFailed, WrongUse
from kohort.client.producing import DeliveryFailed, IdempotentProducer
from kohort.client.records import place_of
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

LOG: Final = logging.getLogger(__name__)

_MOST_RECORDS: Final = 5_000
_LOOK_S: Final = 0.1
_COPIED_SOURCE: Final = "topic"
"""Settings with this source were given to the topic itself."""
_PRODUCER_IS_OVER: Final = (KafkaError._FATAL, KafkaError._PURGE_INFLIGHT, KafkaError._PURGE_QUEUE)
"""Errors of records that fail because another record failed."""


@dataclass(slots=True)
class _Way:
    """The progress of one partition."""

    acknowledged: int | None = None
    """The offset after the last record that the target has, together with all records before."""
    committed: int | None = None
    failed: bool = False
    """A record was refused; later acknowledgements do not count."""


class Mirror:
    """One worker of a mirror.

    Args:
        source: settings of a `Consumer`: ``bootstrap.servers``, ``group.id``, and more.
        target: the settings of the other cluster: ``bootstrap.servers``.
        topics: the topics of the source.
        rename: the name in the target; ``{topic}`` is the name in the source.
        commit_interval_s: the time between two commits.

    Raises:
        ConfigError: a setting is wrong.
        WrongUse, TypeError: as `Consumer.subscribe`.
    """

    def __init__(
        self,
        source: ClientSettings | Mapping[str, object],
        target: ClientSettings | Mapping[str, object],
        topics: Iterable[str],
        *,
        rename: str = "{topic}",
        commit_interval_s: float = 1.0,
    ) -> None:
        self._source = replace(parse_client_settings(source), enable_auto_commit=False)
        self._target = parse_client_settings(target)
        wanted = arguments.topics(topics)
        self._names = {topic: rename.replace("{topic}", topic) for topic in wanted}
        if "{topic}" not in rename:
            raise ConfigError(f"rename is {rename!r}, expected a text with {{topic}} in it")
        if self._source.group_id is None:
            raise ConfigError("group.id is missing: the workers of a mirror are a group")
        if not commit_interval_s > 0:
            raise ConfigError(f"expected a commit interval above 0 s, got {commit_interval_s}")
        self._commit_interval_s = commit_interval_s
        self._ways: dict[TopicPartition, _Way] = {}
        self._sizes: dict[str, int] = {}
        """The known number of partitions of each topic of the target."""
        self._refused: str | None = None
        """The record that ended the producer."""
        self._is_cause = False
        self._stop_at: float | None = None
        self._committing = False
        self._began = False
        self._metrics: Callable[[], dict[str, float]] = dict
        self.copied = 0
        """Records that the target has acknowledged to this worker."""

    @property
    def settings(self) -> ClientSettings:
        """The settings of the consumer in this worker."""
        return self._source

    def metrics(self) -> dict[str, float]:
        """As `Consumer.metrics`; empty before ``run``. For any thread."""
        return self._metrics()

    def stop(self, timeout_s: float = 30.0) -> None:
        """End ``run`` in order; any thread, or a handler of SIGTERM, may call this.

        Args:
            timeout_s: the longest time to hand the partitions over. A static worker keeps its
                partitions for its return, and ends at once.
        """
        if self._stop_at is None:
            self._stop_at = time.monotonic() + timeout_s

    def run(self) -> None:
        """Copy records until ``stop``.

        Raises:
            ConfigError: a topic is missing, or both names are one topic.
            DeliveryFailed: the target refuses a record, or does not answer. Offsets before that
                record are committed.
            ClientError: the brokers or the group refuse this worker.
        """
        if self._began:
            raise WrongUse("run() was called before; make a new Mirror")
        self._began = True
        self._make_topics()
        with ExitStack() as stack:
            self._producer = IdempotentProducer(self._target, self._largest_batch(), gapless=True)
            stack.callback(self._producer.close)
            self._consumer = stack.enter_context(Consumer(self._source))
            self._consumer.subscribe(
                list(self._names),
                on_assign=lambda _, partitions: self.assigned(partitions),
                on_revoke=lambda _, partitions: self.revoked(partitions),
                on_lost=lambda _, partitions: self.lost(partitions),
            )
            self._metrics = self._consumer.metrics
            self._loop()
            self._consumer.close()

    def _loop(self) -> None:
        draining = False
        commit_at = time.monotonic() + self._commit_interval_s
        while not (draining and (self._consumer.drained or self._is_late())):
            for record in self._consumer.consume(_MOST_RECORDS, _LOOK_S):
                self._send(record)
            self._producer.look()
            self._check()
            if time.monotonic() >= commit_at:
                self._commit()
                commit_at = time.monotonic() + self._commit_interval_s
            if self._stop_at is not None and not draining:
                if self._source.group_instance_id:
                    return
                draining = True
                self._consumer.drain()

    def _is_late(self) -> bool:
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    # -- records ----------------------------------------------------------------------------------

    def _send(self, record: Message) -> None:
        partition = place_of(record)
        way = self._ways.setdefault(partition, _Way())
        offset = record.offset() or 0
        kind, timestamp = record.timestamp()
        more: dict[str, Any] = {"timestamp": timestamp} if kind else {}

        def delivered(error: Any, _message: Any) -> None:
            if error is not None:
                way.failed = True
                self._note_refused(partition, record, error)
            elif not way.failed:
                way.acknowledged = offset + 1
                self.copied += 1

        try:
            self._producer.produce(
                self._names[partition.topic],
                partition=partition.partition,
                key=record.key(),
                value=record.value(),
                headers=record.headers() or [],
                on_delivery=delivered,
                **more,
            )
        except DeliveryFailed:
            with suppress(DeliveryFailed):
                self._producer.wait()  # the refused record may be answered after this error
            self._check()
            raise

    def _note_refused(self, partition: TopicPartition, record: Message, error: Any) -> None:
        """Keep the first cause; other records fail because the producer is over."""
        is_cause = error.code() not in _PRODUCER_IS_OVER
        if self._refused is None or (is_cause and not self._is_cause):
            self._is_cause = is_cause
            self._refused = (
                f"{partition} at offset {record.offset()}, {len(record)} bytes: the target "
                f"{self._target.bootstrap_servers} refused the record: {error}"
            )

    def _check(self) -> None:
        if self._refused is not None:
            with suppress(DeliveryFailed):
                self._producer.wait()  # the cause may be answered after its effects
            raise DeliveryFailed(self._refused)

    def _commit(self) -> None:
        """Commit after acknowledged records; a refused commit is repeated."""
        new = {
            partition: way.acknowledged
            for partition, way in self._ways.items()
            if way.acknowledged is not None and way.acknowledged != way.committed
        }
        if new and not self._committing:
            self._committing = True
            self._consumer.commit(new, asynchronous=True, callback=self._committed)

    def _committed(
        self, error: BaseException | None, offsets: Mapping[TopicPartition, Position]
    ) -> None:
        self._committing = False
        for partition, at in offsets.items():
            if error is None and partition in self._ways:
                self._ways[partition].committed = at.offset

    # -- partitions -------------------------------------------------------------------------------

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are copied from now on; topics of the target grow with the source."""
        for topic in {p.topic for p in partitions}:
            highest = max(p.partition for p in partitions if p.topic == topic)
            if highest >= self._sizes[topic]:
                self._make_topics()

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Other workers get these partitions: wait for the acknowledgements, and commit."""
        try:
            self._producer.wait()
        except DeliveryFailed as error:
            LOG.warning("the records on their way will be copied again: %s", error)
        done = {
            partition: self._ways[partition].acknowledged
            for partition in partitions
            if partition in self._ways
        }
        positions = {partition: at for partition, at in done.items() if at is not None}
        self.lost(partitions)
        if positions:
            try:
                self._consumer.commit(positions)
            except ClientError as error:
                LOG.warning("the last records will be copied again: %s", error)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Other workers may copy these partitions already: forget them."""
        for partition in partitions:
            self._ways.pop(partition, None)

    # -- topics -----------------------------------------------------------------------------------

    def _make_topics(self) -> None:
        """Create missing topics of the target with the partitions and settings of the source."""
        with Admin(self._source) as source, Admin(self._target) as target:
            same = source.describe_cluster().cluster_id == target.describe_cluster().cluster_id
            there, here = source.topics(), target.topics()
            for topic, name in self._names.items():
                if topic not in there:
                    raise ConfigError(f"the topic {topic} does not exist in the source")
                if same and topic == name:
                    raise ConfigError(
                        f"{topic} would be copied into itself: source and target are one cluster; "
                        "give another name with rename"
                    )
                wanted = len(there[topic].topic_partitions)
                if name not in here:
                    self._create(source, target, topic, wanted)
                elif len(here[name].topic_partitions) < wanted:
                    self._grow(target, topic, wanted)
                self._sizes[topic] = wanted

    def _largest_batch(self) -> int:
        """The bytes that all topics of the target take at once."""
        with Admin(self._target) as target:
            settings = [target.topic_settings(name) for name in self._names.values()]
        return min(int(each["max.message.bytes"].value or 1) for each in settings)

    def _create(self, source: Admin, target: Admin, topic: str, partitions: int) -> None:
        settings = source.topic_settings(topic).values()
        copied = {s.name: s.value or "" for s in settings if s.source == _COPIED_SOURCE}
        try:
            target.create_topic(self._names[topic], partitions, configs=copied)
            LOG.info("created %s with %d partitions", self._names[topic], partitions)
        except RequestFailed as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise  # another worker created it

    def _grow(self, target: Admin, topic: str, partitions: int) -> None:
        try:
            target.create_partitions(self._names[topic], partitions)
        except RequestFailed:
            found = target.topics([self._names[topic]])[self._names[topic]]
            if len(found.topic_partitions) < partitions:
                raise
