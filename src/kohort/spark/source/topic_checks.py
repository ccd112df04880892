"""Notices topics that were made again, logs that were cut, and partitions that were added.

In: the topics on the brokers, the topics that the ledger noted, positions. Out: errors and
warnings. Must not know: Spark, groups, fences.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position
from kohort.spark.ledgers.ledger import NotedTopic, SourceLedger
from kohort.spark.source.options import DELETED, LOST

if TYPE_CHECKING:
    from kohort.spark.source.kafka_topics import KafkaTopics

LOG: Final = logging.getLogger(__name__)

MADE_AGAIN: Final = (
    "the topic was deleted and made again, or these brokers are another cluster; use another group "
    "and another output directory for the new topic, or name the former brokers"
)
"""The end of an error message about another topic with the same name."""


def check_id(name: str, noted: NotedTopic | None, found: str | None) -> None:
    """Raise ConfigError if a topic has another id than a ledger noted; None is an unknown id."""
    if noted is not None and found and noted.topic_id not in (None, found):
        raise ConfigError(
            f"expected topic {name} with the id {noted.topic_id}, it has the id {found}: "
            f"{MADE_AGAIN}"
        )


def kept_until(
    ends: Mapping[TopicPartition, Position],
    leaders: Mapping[TopicPartition, int],
    epoch_ends: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]],
) -> dict[TopicPartition, int]:
    """The first offset of each log that may have no record, or another one than was read.

    Args:
        ends: the ends of the logs, with their leader epochs.
        leaders: the latest leader epoch that a record which was read can have; see ADR 0061.
        epoch_ends: asks the brokers for the ends of leader epochs.
    """
    older = {p: leaders[p] for p in ends if ends[p].leader_epoch > leaders.get(p, -1) >= 0}
    found = epoch_ends(older)
    return {p: min(end.offset, found.get(p, end.offset)) for p, end in ends.items()}


class TopicChecks:
    """The checks of one query.

    Args:
        topics: the topics on the brokers.
        ledger: notes each topic when the table sees it first.
        fail_on_data_loss: whether lost records are an error; else they are told in the log.
        pattern: whether a pattern chooses the topics, so that others may come later.
    """

    def __init__(
        self,
        topics: KafkaTopics,
        ledger: SourceLedger,
        *,
        fail_on_data_loss: bool,
        pattern: bool = False,
    ) -> None:
        self._topics = topics
        self._ledger = ledger
        self._fail = fail_on_data_loss
        self._pattern = pattern
        self._noted: dict[str, NotedTopic] = {}
        self._described: dict[str, NotedTopic] = {}
        """The topics of the last look."""
        self._leaders: dict[TopicPartition, int] = {}
        """The latest leader epoch that a record before the position can have."""
        self._cut: set[TopicPartition] = set()
        """The partitions with a log that ends before the position, as far as that was told."""

    def look(self) -> None:
        """Note new topics; warn if a topic of a pattern is gone.

        Equal offsets of two topics with one name are different records, and the manifest knows
        offsets only. So a topic that was made again is an error also with ``failOnDataLoss=false``.

        Raises:
            ConfigError: a topic was made again.
        """
        described = self._topics.described()
        for name in sorted(self._described.keys() - described.keys()):
            self._tell_gone(name, self._described[name])
        self._described = described
        before = self._noted or self._ledger.noted_topics()
        later = self._pattern and bool(before)
        for name, found in described.items():
            noted = self._noted.get(name)
            if noted is None:
                # A topic that began to match later is read from its beginning.
                first = replace(found, partitions=0) if later and name not in before else found
                noted = self._noted[name] = self._ledger.note_topic(name, first)
            check_id(name, noted, found.topic_id)

    def _tell_gone(self, name: str, seen: NotedTopic) -> None:
        partitions = [TopicPartition(name, number) for number in range(seen.partitions)]
        positions = self._ledger.positions(partitions)
        LOG.warning(
            "topic %s is gone: it was deleted, or this user may not see it any more; the other "
            "topics are read; later records of the topic, if there were any, are not in the "
            "table: %s",
            name,
            ", ".join(f"{p} from offset {at.next_offset}" for p, at in positions.items()),
        )

    def added(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """The partitions that were added after the table saw their topic first."""
        first = {name: noted.partitions for name, noted in self._noted.items()}
        return [p for p in partitions if p.partition >= first.get(p.topic, p.partition + 1)]

    def check_ends(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Position]
    ) -> None:
        """Compare positions with the ends of their logs, and with the leader epochs (KIP-320).

        Raises:
            ConfigError: a log ends before its position, or did so after an election.
        """
        for partition, position in positions.items():
            if position <= ends[partition].offset:
                self._cut.discard(partition)
                continue
            if self._fail or partition not in self._cut:
                self._cut.add(partition)
                self._tell_lost(partition, position, f"it ends at {ends[partition].offset}")
        self._check_leaders(positions, ends)

    def _check_leaders(
        self, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, Position]
    ) -> None:
        """Find logs that an election cut and that are longer than the position now (ADR 0061)."""
        elected = {
            partition: ends[partition].leader_epoch
            for partition in positions
            if ends[partition].leader_epoch > self._leaders.get(partition, -1)
        }
        if not elected:
            return
        asked = {p: self._leaders[p] for p in elected if self._leaders.get(p, -1) >= 0}
        for partition, end in self._topics.epoch_ends(asked).items():
            if end < positions[partition] <= ends[partition].offset:
                self._tell_lost(
                    partition,
                    positions[partition],
                    f"leader epoch {asked[partition]} ends at {end} in its log: another leader, "
                    f"up to leader epoch {elected[partition]}, wrote the records behind it",
                )
        self._ledger.note_leaders(elected)
        self._leaders.update(elected)

    def _tell_lost(self, partition: TopicPartition, position: int, why: str) -> None:
        told = (
            f"expected to read {partition} from offset {position}, but {why}; an unclean election "
            f"of a leader lost records, or the topic was deleted and made again; {LOST}"
        )
        if self._fail:
            raise ConfigError(told)
        LOG.warning("%s. New records before offset %d are not read", told, position)

    def acquired(self, partitions: Collection[TopicPartition]) -> None:
        """Read the leader epochs that former owners of these partitions noted."""
        for partition in partitions:
            self._leaders.pop(partition, None)
        self._leaders.update(self._ledger.noted_leaders(partitions))

    def check_range(self, positions: Mapping[TopicPartition, int]) -> None:
        """Compare positions with the starts and the ends of their logs.

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
