"""API key 12, Heartbeat: a member is alive, and learns that a rebalance runs.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | group instance id (KIP-345) | |
| 4 | flexible (KIP-482) | flexible |
"""

from __future__ import annotations

from kohort.schema import (
    INT16,
    INT32,
    STRING,
    field,
    request,
    response,
)


@request(api_key=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """A member's sign of life in a generation."""

    group_id: str = field(STRING)
    generation_id: int = field(INT32)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)


@response(api_key=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """NONE, REBALANCE_IN_PROGRESS, or why the member is not in this generation."""

    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    error_code: int = field(INT16)
