"""A heartbeat that says what the last one of its connection said, told by its bytes.

In: the bytes of a request that came alone, and what the coordinator knows of its member. Out:
whether later bytes are the same request again, and the bytes of the answer to it. Must not know:
groups, time.

Between two heartbeats of a member nothing differs but the correlation id. Whoever knows the last
one needs neither header nor fields to serve the next, only a comparison. What is kept is one short
request a connection.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kohort.coordinator.answers import HeartbeatAnswer
from kohort.coordinator.liveness import HeartbeatHandle
from kohort.model.errors import ErrorCode
from kohort.model.values import shared
from kohort.wire.codec import encode_response
from kohort.wire.messages.k12_heartbeat import HeartbeatResponse

MAX_HEARTBEAT_SIZE: Final = 512
"""Bytes of the longest frame that is kept."""

_ID_AT: Final = 8
_ID_ENDS: Final = 12
"""Where the correlation id stands in a request's frame: behind size, key and version."""

_ANSWER_ID_AT: Final = 4
_ANSWER_ID_ENDS: Final = 8
"""Where it stands in a response's frame: behind the size."""


class LastHeartbeat(HeartbeatHandle):
    """The last heartbeat of a connection, with what the coordinator knows of its member.

    Attributes:
        size: bytes of its frame.
        version: of the API.
    """

    __slots__ = ("_alive", "_head", "_tail", "size", "version")

    def __init__(self, frame: bytes, version: int, handle: HeartbeatHandle) -> None:
        super().__init__(handle.group, handle.member, handle.deadline)
        self.size = len(frame)
        self._head = shared(frame[:_ID_AT])
        self._tail = frame[_ID_ENDS:]
        self.version = version
        self._alive = _alive(version)

    def is_again(self, frame: bytes) -> bool:
        """Whether ``frame`` is the same request, under whatever correlation id."""
        return frame[_ID_ENDS:] == self._tail and frame[:_ID_AT] == self._head

    def correlation_id(self, frame: bytes) -> int:
        """The correlation id of ``frame``."""
        return int.from_bytes(frame[_ID_AT:_ID_ENDS], "big", signed=True)

    def response(self, frame: bytes, answer: HeartbeatAnswer) -> bytes:
        """What answers ``frame``, in its own frame."""
        correlation_id = frame[_ID_AT:_ID_ENDS]
        if answer.error is ErrorCode.NONE:
            return correlation_id.join(self._alive)
        message = HeartbeatResponse(error_code=answer.error)
        return encode_response(message, self.version, self.correlation_id(frame))


@cache
def _alive(version: int) -> tuple[bytes, bytes]:
    """What stands before and behind the correlation id of a response without error."""
    frame = encode_response(HeartbeatResponse(), version, 0)
    return frame[:_ANSWER_ID_AT], frame[_ANSWER_ID_ENDS:]
