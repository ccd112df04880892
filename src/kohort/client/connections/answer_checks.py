"""Checks of answers, and the values in answers of several partitions.

In: error codes, answers to Metadata, ListOffsets and OffsetForLeaderEpoch. Out: offsets by
partition, or an exception with Kafka's code. Must not know: connections, retries.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kohort.client.descriptions import OffsetDescription
from kohort.client.errors import RequestFailed
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition


class NotRetried(Exception):
    """Carries an error that must not be retried here, although its code is retriable."""

    def __init__(self, error: RequestFailed) -> None:
        super().__init__(str(error))
        self.error = error


def check(code: int, about: str, message: str | None = None) -> None:
    """Raise RequestFailed if ``code`` is an error."""
    if code:
        raise RequestFailed(ErrorCode.of(code), about, message)


def check_known(code: int, about: str, message: str | None = None) -> None:
    """Like `check`, but the error of a topic or partition that does not exist is not retried."""
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NotRetried(RequestFailed(ErrorCode.of(code), about))
    check(code, about, message)


def check_leaders(answer: Any, partitions: Collection[TopicPartition]) -> None:
    """Check by an answer of Metadata that these partitions exist and have leaders.

    Raises:
        NotRetried: one does not exist.
        RequestFailed: one has no leader at present, or a topic is refused.
    """
    leaders: dict[TopicPartition, int] = {}
    for topic in answer.topics:
        check_known(topic.error_code, f"topic {topic.name}")
        for p in topic.partitions:
            leaders[TopicPartition(topic.name, p.partition_index)] = p.leader_id
    for tp in partitions:
        if tp not in leaders:
            check_known(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {tp}")
        if leaders[tp] < 0:
            raise RequestFailed(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {tp}")


def note_offsets(answer: Any, found: dict[TopicPartition, OffsetDescription]) -> None:
    """Add the offsets of a leader's answer; raises RequestFailed for the first one refused."""
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            check(p.error_code, f"partition {tp}")
            found[tp] = OffsetDescription(
                offset=p.offset, leader_epoch=p.leader_epoch, timestamp=p.timestamp
            )


def note_epoch_ends(answer: Any, found: dict[TopicPartition, int]) -> None:
    """Add the ends of a leader's answer, -1 for an unknown epoch; raises like ``note_offsets``."""
    for topic in answer.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.topic, p.partition)
            check(p.error_code, f"partition {tp}")
            found[tp] = p.end_offset
