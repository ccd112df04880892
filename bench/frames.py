"""Builds Kafka frames by hand, so that the load is cheap and uses no codec of kohort.

JoinGroup v5 and SyncGroup v3 have the classic encoding, Heartbeat v4 and OffsetCommit v8 the
compact encoding. Repeated frames are prepared once; only numbers at known positions change.
"""

from __future__ import annotations

import struct

CORRELATION_ID = 7
SESSION_TIMEOUT_MS = 120_000
PROTOCOL = "range"
MEMBER_ID_REQUIRED = 79
NOT_YET = (14, 15, 16)
"""Errors of a fresh Kafka until its coordinator has loaded the new offsets topic."""

HEARTBEAT_OK = struct.pack(">iibihb", 12, CORRELATION_ID, 0, 0, 0, 0)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def compact(value: str) -> bytes:
    return bytes([len(value) + 1]) + value.encode()


def framed(api_key: int, version: int, body: bytes, *, tagged: bool = False) -> bytes:
    head = struct.pack(">hhi", api_key, version, CORRELATION_ID) + text("bench")
    head += b"\x00" if tagged else b""
    return struct.pack(">i", len(head) + len(body)) + head + body


def find_coordinator(group: str) -> bytes:
    return framed(10, 1, text(group) + b"\x00")


def subscription(user_data_bytes: int) -> bytes:
    """A subscription to one topic, version 0, with user data of the given size."""
    metadata = struct.pack(">hi", 0, 1) + text("bench")
    return metadata + (data(bytes(user_data_bytes)) if user_data_bytes else struct.pack(">i", -1))


def join(group: str, member: str, metadata: bytes) -> bytes:
    body = text(group) + struct.pack(">ii", SESSION_TIMEOUT_MS, SESSION_TIMEOUT_MS)
    body += text(member) + struct.pack(">h", -1) + text("consumer")
    return framed(11, 5, body + struct.pack(">i", 1) + text(PROTOCOL) + data(metadata))


def sync(group: str, generation: int, member: str, plan: dict[str, bytes]) -> bytes:
    body = text(group) + struct.pack(">i", generation) + text(member) + struct.pack(">h", -1)
    body += struct.pack(">i", len(plan))
    return framed(14, 3, body + b"".join(text(m) + data(plan[m]) for m in plan))


def sync_generation_at(group: str) -> int:
    """The position of the generation in a ``sync`` of this group."""
    return len(framed(14, 3, text(group)))


def heartbeat(group: str, generation: int, member: str) -> bytes:
    body = compact(group) + struct.pack(">i", generation) + compact(member) + b"\x00\x00"
    return framed(12, 4, body, tagged=True)


def commit(group: str, generation: int, member: str, topic: str, partition: int) -> bytes:
    """A commit of offset 0; the offset is ``COMMITTED_FROM_END`` bytes before the end."""
    body = compact(group) + struct.pack(">i", generation) + compact(member) + b"\x00\x02"
    body += compact(topic) + b"\x02" + struct.pack(">iqi", partition, 0, -1)
    return framed(8, 8, body + b"\x01" + b"\x00\x00\x00", tagged=True)


COMMITTED_FROM_END = 8 + 4 + 1 + 3
"""The distance from the offset of a ``commit`` to the end of the frame, in bytes."""


def committed(topic: str, partition: int) -> bytes:
    """The answer to a stored ``commit``."""
    body = struct.pack(">ibi", CORRELATION_ID, 0, 0) + b"\x02" + compact(topic) + b"\x02"
    body += struct.pack(">ih", partition, 0) + b"\x00\x00\x00"
    return struct.pack(">i", len(body)) + body


COMMITTED = committed("a-topic-with-a-name-of-as-many-bytes-as-fresh", 0)
"""The answer of the floor to a commit: of the usual size."""


def synced(assignment: bytes) -> bytes:
    """The answer to a ``sync``, with the member's assignment."""
    body = struct.pack(">iih", CORRELATION_ID, 0, 0) + data(assignment)
    return struct.pack(">i", len(body)) + body


GENERATION_AT = 14
"""The position of the generation in the frame of a JoinGroup response: after size, correlation id,
throttle time and error."""


def error_of_join(frame: bytes) -> int:
    (error,) = struct.unpack_from(">h", frame, 12)
    return int(error)


def error_of_sync(frame: bytes) -> int:
    return error_of_join(frame)


def generation_of(frame: bytes) -> int:
    (generation,) = struct.unpack_from(">i", frame, GENERATION_AT)
    return int(generation)


def texts_of_join(frame: bytes) -> tuple[str, str, str, int]:
    """Protocol, leader, member id and number of members of a JoinGroup response."""
    position, found = GENERATION_AT + 4, []
    for _ in range(3):
        (length,) = struct.unpack_from(">h", frame, position)
        found.append(frame[position + 2 : position + 2 + max(length, 0)].decode())
        position += 2 + max(length, 0)
    (members,) = struct.unpack_from(">i", frame, position)
    return found[0], found[1], found[2], int(members)


def followed(frame: bytes) -> bytes:
    """A follower's JoinGroup response without its generation: the same in each round."""
    return frame[:GENERATION_AT] + frame[GENERATION_AT + 4 :]
