"""A commit that says what the last one of its connection said but for its offsets, told by bytes.

In: the bytes of a request that came alone, what they were read as, and the event that was made of
it. Out: the event of later bytes, if nothing in them differs but numbers, and the bytes of the
answer that says that all is stored. Must not know: groups, time, the log.

Between two commits of a member nothing differs, as a rule, but the correlation id and the offsets.
Where those stand is not guessed: the request is written twice more, once with all bits of every
offset clear and once with all set, and what differs between the two are the offsets. What comes out
is the event that reading in full would give; all that a coordinator decides, it decides again.
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
"""Bytes of the longest frame that is kept."""

_ID_AT: Final = 8
_ID_ENDS: Final = 12
"""Where the correlation id stands in a request's frame: behind size, key and version."""

_ANSWER_ID_AT: Final = 4
_ANSWER_ID_ENDS: Final = 8
"""Where it stands in a response's frame: behind the size."""

_OFFSET_BYTES: Final = 8
_ALL_BITS: Final = b"\xff" * _OFFSET_BYTES


class KnownCommit:
    """The last commit of a connection that was read in full.

    Attributes:
        event: what the coordinator was told of it.
        header: what stood before it; the correlation id is that of the first one.
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
        """Correlation id and offsets in ``frame``, of ``size`` bytes; None: more is different."""
        parts = self._unpack(frame)
        return parts[1::2] if parts[::2] == self._fixed else None

    def is_stored(self, answer: Answer) -> bool:
        """Whether an answer says that all partitions are stored, and nothing else."""
        return type(answer) is OffsetCommitAnswer and answer.partitions == self._stored

    def response(self, correlation_id: int) -> bytes:
        """The frame of an answer that ``is_stored``, to the request of that id."""
        return correlation_id.to_bytes(4, "big", signed=True).join(
            (self._before_id, self._after_id)
        )


def known_commit(
    frame: bytes, header: RequestHeader, request: OffsetCommitRequest, event: OffsetCommit
) -> KnownCommit | None:
    """What makes the next commit like this one cheap; None if it cannot be known by its bytes.

    That is one that is long, names topics by id, or is not written as this project would write it.
    ``request`` is used up: its offsets are not what they were.
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
    """A request's frame as fixed bytes and numbers in turn, the first of them its id."""
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
"""Members of a group commit requests of one shape."""
