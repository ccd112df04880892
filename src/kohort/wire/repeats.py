"""A response that comes again with the same bytes is read once.

In: the reader of a response. Out: one that remembers the last thing it has read. Must not know:
connections, members. (Heartbeats that come again are known by their connection, see
``kohort.engine.coordinator_heartbeats``.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_ANSWERS_THE_SAME = 4
"""Where a response's part begins that repeats: behind the correlation id."""


def recalling(read: Callable[[bytes, int], T]) -> Callable[[bytes, int], T]:
    """``read``, the reader of a response, but the same bytes as last time are not read again.

    What a broker tells about thousands of partitions seldom changes, and is the same for all of a
    process's clients. They share one message, so nobody may change it.
    """
    last: tuple[bytes, int, T] | None = None

    def read_or_recall(frame: bytes, max_elements: int) -> T:
        nonlocal last
        body = frame[_ANSWERS_THE_SAME:]
        if last is not None and last[0] == body and last[1] <= max_elements:
            return last[2]
        message = read(frame, max_elements)
        last = (body, max_elements, message)
        return message

    return read_or_recall
