"""Looks for the topics of a subscription: those that match a pattern, or those that are named.

In: a pattern or names, answers of brokers. Out: names; warnings of missing topics and partitions,
refusals. Must not know: members.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Any, Final

from kohort.client.config import ClientSettings
from kohort.client.connections.driver_thread import DriverThread
from kohort.client.errors import ClientError, RequestFailed
from kohort.engine.cluster import metadata_request
from kohort.engine.member_outputs import Answered, Target
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition

LOG: Final = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""The time until the next question after a failure."""


class TopicNames:
    """Asks whether topics exist, each ``metadata.max.age.ms``; refused ones each second.

    The log warns of topics and partitions that do not exist.

    Args:
        names: of topics.
        thread: sends the questions.
        settings: ``allow.auto.create.topics``, ``metadata.max.age.ms``.
        partitions: partitions of these topics that have to exist.
    """

    def __init__(
        self,
        names: Iterable[str],
        thread: DriverThread[Any],
        settings: ClientSettings,
        partitions: Collection[TopicPartition] = (),
    ) -> None:
        self._partitions = partitions
        self._thread = thread
        self._create = settings.allow_auto_create_topics
        self._max_age_s = settings.metadata_max_age_ms / 1_000
        self._names = sorted(names)
        self._left: Collection[str] = self._names
        """Topics to ask about again, or about which this asks now."""
        self._ask_at = 0.0
        self._asked: Future[list[str]] | None = self._ask()

    def look(self) -> None:
        """Take an answer that came. Does not wait.

        Raises:
            RequestFailed: TOPIC_AUTHORIZATION_FAILED; the next question is asked a second later.
        """
        now = time.monotonic()
        if self._asked is None:
            if now >= self._ask_at:
                self._left = self._left or self._names
                self._asked = self._ask()
            return
        if not self._asked.done():
            return
        asked, self._asked = self._asked, None
        self._ask_at = now + _AGAIN_S
        try:
            self._left = asked.result()
        except ClientError as error:
            LOG.debug("topics %s are not known: %s", self._left, error)
            return
        if not self._left:
            self._ask_at = now + max(_AGAIN_S, self._max_age_s)
        if self._left:
            raise RequestFailed(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"group {self._thread.group_id}: topic {', '.join(self._left)}",
                "the user of this client needs the permission READ on it; topics that it may read "
                "are read meanwhile",
            )

    def _ask(self) -> Future[list[str]]:
        message = metadata_request(self._left, self._create)
        driver = self._thread.driver
        return self._thread.request(
            lambda now: driver.request(Target.ANY, message, now), self._read
        )

    def _read(self, answer: Answered) -> list[str]:
        """The topics that this client may not read."""
        denied = []
        for topic in answer.message.topics:
            if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                denied.append(topic.name)
            elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                LOG.warning(
                    "group %s: topic %s does not exist; it is read once it does, and "
                    "`kohort topics create %s` makes it",
                    self._thread.group_id, topic.name, topic.name,
                )  # fmt: skip
            elif topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                LOG.warning(
                    "group %s: no topic can have the name %r: a name has at most 249 letters, "
                    "digits, '.', '_' and '-'. Subscribe to another name",
                    self._thread.group_id, topic.name,
                )  # fmt: skip
            elif not topic.error_code:
                self._check_partitions(topic.name, len(topic.partitions))
        return denied

    def _check_partitions(self, topic: str, count: int) -> None:
        wanted = (tp for tp in self._partitions if tp.topic == topic and tp.partition >= count)
        if missing := ", ".join(map(str, sorted(wanted))):
            LOG.warning(
                "group %s: %s: there is no such partition, topic %s has %d; it is read once it "
                "exists. Assign one of the others, or add partitions to the topic",
                self._thread.group_id, missing, topic, count,
            )  # fmt: skip


class TopicPattern:
    """Asks the brokers for all topics; the polling thread calls.

    Args:
        pattern: must match the whole name, as in the Java client. Internal topics never match.
        thread: sends the questions.
        max_age_ms: ``metadata.max.age.ms``, the time between two questions.
    """

    def __init__(
        self, pattern: re.Pattern[str], thread: DriverThread[Any], max_age_ms: int
    ) -> None:
        self._pattern = pattern
        self._thread = thread
        self._max_age_s = max_age_ms / 1_000
        self._ask_at = 0.0
        self._asked: Future[Any] | None = None
        self._known: frozenset[str] = frozenset()

    def look(self) -> frozenset[str] | None:
        """The matching names if there are any and they changed, else None. Does not wait."""
        now = time.monotonic()
        if self._asked is None:
            if now >= self._ask_at:
                message = metadata_request(None)
                driver = self._thread.driver
                self._asked = self._thread.request(
                    lambda now: driver.request(Target.ANY, message, now), self._names
                )
            return None
        if not self._asked.done():
            return None
        asked, self._asked = self._asked, None
        try:
            found: frozenset[str] = asked.result()
        except ClientError as error:
            LOG.warning("the topics of %s are not known: %s", self._pattern.pattern, error)
            self._ask_at = now + min(_AGAIN_S, self._max_age_s)
            return None
        self._ask_at = now + self._max_age_s
        if not found or found == self._known:
            return None
        self._known = found
        return found

    def _names(self, answer: Answered) -> frozenset[str]:
        return frozenset(
            topic.name
            for topic in answer.message.topics
            if not topic.error_code
            and not topic.is_internal
            and self._pattern.fullmatch(topic.name)
        )
