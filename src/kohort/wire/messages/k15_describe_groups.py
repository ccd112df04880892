"""API key 15, DescribeGroups: state and members of groups.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | asks for authorized operations (KIP-430) | authorized operations |
| 4 | | group instance ids (KIP-345) |
| 5 | flexible (KIP-482) | flexible |
| 6 | | GROUP_ID_NOT_FOUND in place of the pseudo-state Dead, error message (KIP-1043) |
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


@request(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Ask about groups by id."""

    groups: list[str] = field(array(STRING))
    include_authorized_operations: bool = field(BOOL, versions="3+")


@struct()
class DescribedGroupMember:
    """A member with the bytes of its protocol, unread."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(
        STRING, versions="4+", nullable="4+", default=None, ignorable=True
    )
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    member_metadata: bytes = field(BYTES)
    member_assignment: bytes = field(BYTES)


@struct()
class DescribedGroup:
    """A group."""

    error_code: int = field(INT16)
    error_message: str | None = field(
        STRING, versions="6+", nullable="6+", default=None, ignorable=True
    )
    group_id: str = field(STRING)
    group_state: str = field(STRING)
    protocol_type: str = field(STRING)
    protocol_data: str = field(STRING)
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember))
    authorized_operations: int = field(INT32, versions="3+", default=-2_147_483_648)


@response(api_key=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """The groups asked for."""

    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup))
