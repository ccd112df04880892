"""API key 14, SyncGroup: the leader sends all assignments, each member gets its own.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | group instance id (KIP-345) | |
| 4 | flexible (KIP-482) | flexible |
| 5 | protocol type and name, to be compared (KIP-559) | protocol type and name |
"""

from __future__ import annotations

from kohort.schema import (
    BYTES,
    INT16,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@struct()
class SyncGroupRequestAssignment:
    """The assignment of one member."""

    member_id: str = field(STRING)
    assignment: bytes = field(BYTES)


@request(api_key=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Ask for the assignment; the leader's carries all of them."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    protocol_type: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    protocol_name: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment))


@response(api_key=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """The member's own assignment."""

    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    error_code: int = field(INT16)
    protocol_type: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    protocol_name: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    assignment: bytes = field(BYTES)
