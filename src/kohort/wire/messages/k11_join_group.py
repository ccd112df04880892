"""API key 11, JoinGroup: enter a group, or enter its next generation.

The answer is held back until the join barrier opens.

| version | request | response |
|---|---|---|
| 1 | rebalance timeout (KIP-62) | |
| 2 | | throttle time (KIP-124) |
| 3 | | throttling happens after the answer (KIP-219) |
| 4 | | MEMBER_ID_REQUIRED with the id to come back with (KIP-394) |
| 5 | group instance id (KIP-345) | instance ids of the members |
| 6 | flexible (KIP-482) | flexible |
| 7 | | protocol type; protocol name may be null (KIP-559) |
| 8 | reason (KIP-800) | |
| 9 | | skip assignment, for a returning static leader (KIP-814) |
"""

from __future__ import annotations

from kohort.schema import (
    BOOL,
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
class JoinGroupRequestProtocol:
    """An offered protocol, with the metadata for its assignor."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


@request(api_key=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Join with an offer of protocols, the preferred one first."""

    group_id: str = field(STRING)
    session_timeout_ms: int = field(INT32)
    rebalance_timeout_ms: int = field(INT32, versions="1+", default=-1, ignorable=True)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, versions="5+", nullable="5+", default=None)
    protocol_type: str = field(STRING)
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol))
    reason: str | None = field(STRING, versions="8+", nullable="8+", default=None, ignorable=True)


@struct()
class JoinGroupResponseMember:
    """A member, as the leader sees it."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(
        STRING, versions="5+", nullable="5+", default=None, ignorable=True
    )
    metadata: bytes = field(BYTES)


@response(api_key=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """The generation entered; only the leader gets the members."""

    throttle_time_ms: int = field(INT32, versions="2+", ignorable=True)
    error_code: int = field(INT16)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(
        STRING, versions="7+", nullable="7+", default=None, ignorable=True
    )
    protocol_name: str | None = field(STRING, nullable="7+")
    leader: str = field(STRING)
    skip_assignment: bool = field(BOOL, versions="9+")
    member_id: str = field(STRING)
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember))
