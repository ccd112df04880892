"""The log of librdkafka, for its consumers and producers.

In: lines of librdkafka. Out: lines of the module logging, without endless repetitions. Must not
know: records, partitions.
"""

from __future__ import annotations

import logging
import time
from typing import Final

LOG: Final = logging.getLogger("kohort.client.fetching.record_fetcher")
"""The setting ``debug`` promises a name below ``kohort.client.fetching``."""

_REPEAT_S: Final = 30.0
_MOST_KINDS: Final = 1_000


class LibrdkafkaLog:
    """The ``logger`` of a client of confluent-kafka: warnings of one kind at most once in 30 s.

    Otherwise librdkafka reports a broker that is down ten times a second.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], float] = {}

    def log(self, level: int, text: str, facility: str, client: str, line: str) -> None:
        """Called by confluent-kafka while its client polls, consumes or flushes."""
        kind = (facility, line.partition("]")[0])
        now = time.monotonic()
        if facility == "CONFWARN":
            level = logging.DEBUG  # about a setting that kohort chose, not the user
        elif level >= logging.WARNING:
            if facility == "FAIL":
                level = logging.WARNING  # a connection; librdkafka opens the next one
            if now < self._last.get(kind, -_REPEAT_S) + _REPEAT_S:
                level = logging.DEBUG
            else:
                self._last[kind] = now
                if len(self._last) > _MOST_KINDS:
                    self._last.clear()
        LOG.log(level, text, facility, client, line)
