"""Asks the brokers for the partitions of the subscribed topics and for their offsets.

In: topic names and client settings. Out: partitions and offsets. Must not know: Spark, groups.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from kohort.client.admin import Admin
from kohort.client.config import ClientSettings
from kohort.client.descriptions import TopicDescription
from kohort.client.errors import RequestFailed
from kohort.model.errors import ConfigError, ErrorCode, KohortError
from kohort.model.ids import TopicPartition
from kohort.model.positions import EARLIEST, LATEST, Position
from kohort.spark.ledgers.ledger import NotedTopic
from kohort.spark.source.fetching import BatchFetcher, Wanted

LOG: Final = logging.getLogger(__name__)

_SAMPLE_MS: Final = 5_000
"""Longest wait for records that are only measured."""


class KafkaTopics:
    """The subscribed topics."""

    def __init__(
        self,
        names: Sequence[str],
        settings: ClientSettings,
        pattern: re.Pattern[str] | None = None,
    ) -> None:
        self._names = tuple(names)
        self._pattern = pattern
        self._max_age_s = settings.metadata_max_age_ms / 1_000
        self._look_at = 0.0
        self._servers = settings.bootstrap_servers
        self._admin = Admin(settings)
        self._fetcher: BatchFetcher | None = None
        self._quick = dataclasses.replace(
            settings,
            request_timeout_ms=min(_SAMPLE_MS, settings.request_timeout_ms),
            default_api_timeout_ms=min(_SAMPLE_MS, settings.default_api_timeout_ms),
        )

    def names(self) -> frozenset[str]:
        """The subscribed topics; with a pattern they are at most ``metadata.max.age.ms`` old.

        Raises:
            ConfigError: no topic has ever matched the pattern.
        """
        if self._pattern is not None and time.monotonic() >= self._look_at:
            existing = [name for name in sorted(self._admin.topics()) if name[:2] != "__"]
            found = tuple(name for name in existing if self._pattern.fullmatch(name))
            if not found and not self._names:
                raise ConfigError(
                    f"no topic on {self._servers} has a name that matches "
                    f"{self._pattern.pattern!r} as a whole (existing topics: "
                    f"{', '.join(existing[:10]) or 'none'})"
                )
            self._names = found or self._names
            self._look_at = time.monotonic() + self._max_age_s
        return frozenset(self._names)

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the subscribed topics; raises as ``described``."""
        return sorted(tp for topic in self._found().values() for tp in topic.topic_partitions)

    def described(self) -> dict[str, NotedTopic]:
        """Id and number of partitions of each subscribed topic.

        Raises:
            ConfigError: a topic does not exist.
        """
        return {
            name: NotedTopic(topic_id=topic.topic_id, partitions=len(topic.partitions))
            for name, topic in self._found().items()
        }

    def _found(self, *, again: bool = True) -> dict[str, TopicDescription]:
        try:
            return self._admin.topics(self.names())
        except RequestFailed as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            if self._pattern is not None and again:
                self._look_at = 0.0  # a topic was deleted
                return self._found(again=False)
            existing = ", ".join(sorted(self._admin.topics())[:10]) or "none"
            raise ConfigError(
                f"{error.about} does not exist on {self._servers} (existing topics: {existing}); "
                "make it with `kohort topics create`, or correct the name"
            ) from error

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset in each log."""
        return {p: at.offset for p, at in self._offsets(partitions, EARLIEST).items()}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The first offset that cannot be read yet, and the leader epoch, for each log."""
        return self._offsets(partitions, LATEST)

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """The end of a leader epoch in each log; a log that does not know it is missing."""
        return self._admin.epoch_ends(epochs)

    def record_bytes(self, partition: TopicPartition, offset: int) -> float | None:
        """The bytes an offset of some records from an offset on; None if they cannot be read."""
        if self._fetcher is None:
            self._fetcher = BatchFetcher(self._quick)
        try:
            self._fetcher.ask([Wanted(partition, offset, 1)])
            (fetched,) = self._fetcher.answer()
            sections = list(fetched.sections)
        except KohortError as error:
            LOG.debug("records of %s from %d were not measured: %s", partition, offset, error)
            return None
        if not sections:
            return None
        offsets = sections[-1].header.next_offset - sections[0].header.base_offset
        return sum(len(section.records) for section in sections) / offsets

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()
        if self._fetcher is not None:
            self._fetcher.close()

    def _offsets(
        self, partitions: Collection[TopicPartition], at: int
    ) -> dict[TopicPartition, Position]:
        found = self._admin.list_offsets(partitions, at)
        return {p: Position(each.offset, each.leader_epoch) for p, each in found.items()}
