"""Looks for topics with matching names, again and again.

In: a pattern, answers of brokers about all topics. Out: names. Must not know: subscriptions.
"""

from __future__ import annotations

import logging
import re
import time
from concurrent.futures import Future
from typing import Any, Final

from kohort.client.driver_thread import DriverThread
from kohort.client.errors import ClientError
from kohort.engine.member_outputs import Answered, Target
from kohort.wire.messages import k03_metadata

LOG: Final = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0
"""The time until the next question after a failure."""


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
                message = k03_metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)
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
