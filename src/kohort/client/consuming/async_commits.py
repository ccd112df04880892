"""Commits that nobody waits for: their callbacks, in order, in the polling thread.

In: futures of commits. Out: calls of callbacks. Must not know: polls, partitions.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeAlias

from kohort.client.errors import ClientError
from kohort.model.ids import TopicPartition
from kohort.model.positions import Position

LOG: Final = logging.getLogger("kohort.client.consumer")

MOST: Final = 10_000
"""Asynchronous commits that may wait for an answer."""

CommitCallback: TypeAlias = Callable[[BaseException | None, dict[TopicPartition, Position]], Any]


class AsyncCommits:
    """The commits that were not answered yet."""

    def __init__(self) -> None:
        self._waiting: deque[
            tuple[Future[None], CommitCallback | None, dict[TopicPartition, Position]]
        ] = deque()

    def check_room(self) -> None:
        """Raise ClientError if too many commits wait for an answer."""
        if len(self._waiting) >= MOST:
            raise ClientError(f"{MOST} asynchronous commits wait for an answer already: poll")

    def expect(
        self,
        future: Future[None],
        callback: CommitCallback | None,
        offsets: dict[TopicPartition, Position],
    ) -> None:
        """Call back, or log a failure, in a later poll."""
        self._waiting.append((future, callback, offsets))

    def acknowledge(self) -> None:
        """Call back for commits that were answered, in their order."""
        while self._waiting and self._waiting[0][0].done():
            future, callback, offsets = self._waiting.popleft()
            error = future.exception()
            if callback is not None:
                callback(error, offsets)
            elif error is not None:
                LOG.warning("asynchronous commit failed: %s", error)
