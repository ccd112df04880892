"""Notices topics that were made again, logs that were cut, and partitions that were added.

In: the topics on the brokers, the topics that the ledger noted, positions. Out: errors and
warnings. Must not know: Spark, groups, fences.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.spark.ledger import NotedTopic, SourceLedger
from kohort.spark.options import DELETED

LOG: Final = logging.getLogger(__name__)

MADE_AGAIN: Final = (
    "the topic was deleted and made again; use another group and another output directory for the "
    "new topic"
)
"""The end of an error message about another topic with the same name."""


class Topics(Protocol):
    """The subscribed topics and their offsets on the brokers."""

    def partitions(self) -> list[TopicPartition]:
        """All partitions of the subscribed topics; ConfigError for an unknown topic."""
        ...

    def described(self) -> dict[str, NotedTopic]:
        """Id and number of partitions of each subscribed topic; raises as ``partitions``."""
        ...

    def beginnings(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset in each log."""
        ...

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that cannot be read yet, for each log."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class TopicChecks:
    """The checks of one query.

    Args:
        topics: the topics on the brokers.
        ledger: notes each topic when the table sees it first.
        fail_on_data_loss: whether lost records are an error; else they are told in the log.
    """

    def __init__(self, topics: Topics, ledger: SourceLedger, *, fail_on_data_loss: bool) -> None:
        self._topics = topics
        self._ledger = ledger
        self._fail = fail_on_data_loss
        self._noted: dict[str, NotedTopic] = {}
        self._cut: set[TopicPartition] = set()
        """The partitions with a log that ends before the position, as far as that was told."""

    def look(self) -> None:
        """Note new topics.

        Equal offsets of two topics with one name are different records, and the manifest knows
        offsets only. So a topic that was made again is an error also with ``failOnDataLoss=false``.

        Raises:
            ConfigError: a topic was made again.
        """
        for name, found in self._topics.described().items():
            noted = self._noted.get(name)
            if noted is None:
                noted = self._noted[name] = self._ledger.note_topic(name, found)
            if found.topic_id and noted.topic_id not in (None, found.topic_id):
                raise ConfigError(
                    f"expected topic {name} with the id {noted.topic_id}, it has the id "
                    f"{found.topic_id}: {MADE_AGAIN}"
                )

    def added(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that were added after the table saw their topic first."""
        first = {name: noted.partitions for name, noted in self._noted.items()}
        return [p for p in partitions if p.partition >= first.get(p.topic, p.partition + 1)]

    def check_ends(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        """Compare positions with the ends of their logs.

        Raises:
            ConfigError: a log ends before its position.
        """
        for partition, position in positions.items():
            if position <= ends[partition]:
                self._cut.discard(partition)
                continue
            told = (
                f"expected to read {partition} from offset {position}, but it ends at "
                f"{ends[partition]}: records were lost by an unclean election of a leader, or "
                f"{MADE_AGAIN}"
            )
            if self._fail:
                raise ConfigError(told)
            if partition not in self._cut:
                self._cut.add(partition)
                LOG.warning("%s. New records before offset %d are not read", told, position)

    def check_range(self, positions: Mapping[TopicPartition, int]) -> None:
        """Compare positions with the begins and the ends of their logs.

        Raises:
            ConfigError: a log ends before its position, or begins behind it.
        """
        self.check_ends(positions, self._topics.ends(positions.keys()))
        for partition, begin in self._topics.beginnings(positions.keys()).items():
            if positions[partition] < begin and self._fail:
                raise ConfigError(
                    f"expected to read {partition} from offset {positions[partition]}, but it "
                    f"begins at {begin}: {DELETED}"
                )
