"""What comes again and again with the same bytes is read once.

In: the decoder of a request or a response. Out: one that remembers what it has read.
Must not know: connections, members.

A member that has nothing new to say sends the same heartbeat every three seconds: between two of
them only the correlation id differs. Looking up what the rest meant last time costs a third of
reading it (``bench/codec.py`` prints both). What is remembered is bounded in number and in size,
and forgotten as a whole when it is full; a stranger can make the memory useless, not large.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from kohort.wire.headers import RequestHeader

T = TypeVar("T")

RequestDecoder = Callable[[bytes, int, int, int], tuple[RequestHeader, Any]]

MAX_REMEMBERED = 10_000
"""Requests remembered per API and version: members that one broker can expect to beat."""

MAX_REMEMBERED_SIZE = 512
"""Bytes of the longest request that is remembered."""

_SAYS_THE_SAME = 8
"""Where a request's part begins that repeats: behind key, version and correlation id."""

_ANSWERS_THE_SAME = 4
"""Where a response's part begins that repeats: behind the correlation id."""


def remembering(decode: RequestDecoder, *, limit: int = MAX_REMEMBERED) -> RequestDecoder:
    """``decode``, but a request read before is not read again.

    Requests with the same bytes share one message, so nobody may change it.
    """
    seen: dict[bytes, tuple[RequestHeader, Any]] = {}
    recall = seen.get
    new = object.__new__

    def decode_or_recall(
        frame: bytes, correlation_id: int, length: int, max_elements: int
    ) -> tuple[RequestHeader, Any]:
        known = recall(frame[_SAYS_THE_SAME:])
        if known is None:
            made = decode(frame, correlation_id, length, max_elements)
            if len(frame) <= MAX_REMEMBERED_SIZE:
                if len(seen) >= limit:
                    seen.clear()
                seen[frame[_SAYS_THE_SAME:]] = made
            return made
        before, message = known
        header = new(RequestHeader)  # its constructor would cost twice as much
        header.api_key = before.api_key
        header.api_version = before.api_version
        header.correlation_id = correlation_id
        header.client_id = before.client_id
        return header, message

    return decode_or_recall


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
