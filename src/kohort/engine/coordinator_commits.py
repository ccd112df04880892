"""Commits that differ from an earlier one of their connection in numbers only (ADR 0036).

In: the bytes of a commit that arrived alone, its decoded request, and its event. Out: the numbers
in later bytes, if nothing else in them differs; the bytes of the answer "all offsets are stored".
Must not know: groups, time, the log.

Two commits of a member usually differ in nothing but the correlation id and the offsets. The
positions of the offsets are not computed. The codec writes the request twice more, once with all
bits of every offset clear and once with all bits set; the bytes that differ are the offsets. The
coordinator decides about the resulting event as about any other.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

from kohort.coordinator.interface import (
    Answer,
    OffsetCommit,
    OffsetCommitAnswer,
)
from kohort.model.errors import ErrorCode
from kohort.wire import topic_ids
from kohort.wire.codec import RequestHeader, encode_request, encode_response
from kohort.wire.coordinator_offsets import commit_response
from kohort.wire.messages.k08_offset_commit import OffsetCommitRequest

MAX_COMMIT_SIZE: Final = 2_048
"""Bytes of the longest commit that a connection keeps."""

_ID_AT: Final = 8
_ID_ENDS: Final = 12
"""Position of the correlation id in a request's frame: behind size, key and version."""

_ANSWER_ID_AT: Final = 4
_ANSWER_ID_ENDS: Final = 8
"""Position of the correlation id in a response's frame: behind the size."""

_OFFSET_BYTES: Final = 8
_ALL_BITS: Final = b"\xff" * _OFFSET_BYTES


class KnownCommit:
    """The last commit of a connection that was decoded.

    Attributes:
        event: its event.
        header: its header, with its own correlation id.
        size: bytes of its frame.
    """

    __slots__ = (
        "_after_id",
        "_before_id",
        "_fixed",
        "_stored",
        "_unpack",
        "event",
        "header",
        "size",
    )

    def __init__(
        self, frame: bytes, layout: struct.Struct, header: RequestHeader, event: OffsetCommit
    ) -> None:
        self.header = header
        self.event = event
        self.size = len(frame)
        self._unpack = layout.unpack
        self._fixed = layout.unpack(frame)[::2]
        self._stored = tuple((tp, ErrorCode.NONE) for tp, _ in event.offsets)
        version = header.api_version
        message = commit_response(OffsetCommitAnswer(self._stored), version)
        answer = encode_response(message, version, 0)
        self._before_id = answer[:_ANSWER_ID_AT]
        self._after_id = answer[_ANSWER_ID_ENDS:]

    def numbers(self, frame: bytes | bytearray | memoryview) -> tuple[int, ...] | None:
        """Correlation id and offsets of ``frame``; None: other bytes differ, too."""
        parts = self._unpack(frame)
        return parts[1::2] if parts[::2] == self._fixed else None

    def is_stored(self, answer: Answer) -> bool:
        """Whether an answer says exactly that all partitions are stored."""
        return type(answer) is OffsetCommitAnswer and answer.partitions == self._stored

    def response(self, correlation_id: int) -> bytes:
        """The frame of an answer that ``is_stored``, for the request of that id."""
        return correlation_id.to_bytes(4, "big", signed=True).join(
            (self._before_id, self._after_id)
        )


def known_commit(
    frame: bytes, header: RequestHeader, request: OffsetCommitRequest, event: OffsetCommit
) -> KnownCommit | None:
    """The commit to compare later ones with; None if it cannot be known by its bytes.

    A commit cannot be known if it is long, names topics by id, or has other bytes than this codec
    writes. ``request`` is spoilt: its offsets are overwritten.
    """
    version = header.api_version
    if len(frame) > MAX_COMMIT_SIZE or version >= topic_ids.FROM_VERSION:
        return None
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    written = []
    for number in (0, -1):
        for partition in partitions:
            partition.committed_offset = number
        written.append(encode_request(request, version, header.correlation_id, header.client_id))
    clear, set_ = written
    if len(clear) != len(frame):
        return None
    layout = _layout(clear, set_)
    fixed = layout.unpack(frame)[::2] == layout.unpack(clear)[::2]
    return KnownCommit(frame, layout, header, event) if fixed else None


def _layout(clear: bytes, set_: bytes) -> struct.Struct:
    """A request's frame as fixed bytes and numbers in turn; the first number is the id."""
    differ = (int.from_bytes(clear, "big") ^ int.from_bytes(set_, "big")).to_bytes(
        len(clear), "big"
    )
    parts = [f">{_ID_AT}si"]
    end = _ID_ENDS
    while (at := differ.find(_ALL_BITS, end)) >= 0:
        parts.append(f"{at - end}sq")
        end = at + _OFFSET_BYTES
    parts.append(f"{len(clear) - end}s")
    return _struct("".join(parts))


_struct = lru_cache(maxsize=256)(struct.Struct)
"""The commits of a group's members have one shape."""
