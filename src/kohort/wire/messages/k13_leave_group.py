"""API key 13, LeaveGroup: members leave, with a reason.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | several members, by instance id too (KIP-345) | one error a member |
| 4 | flexible (KIP-482) | flexible |
| 5 | reason (KIP-800) | |
"""

from __future__ import annotations

from kohort.schema import (
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
class MemberIdentity:
    """A member that leaves."""

    member_id: str = field(STRING, versions="3+")
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    reason: str | None = field(STRING, versions="5+", nullable="5+", default=None, ignorable=True)


@request(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """One member up to version 2, ``members`` from 3 on."""

    group_id: str = field(STRING)
    member_id: str = field(STRING, versions="0-2")
    members: list[MemberIdentity] = field(array(MemberIdentity), versions="3+")


@struct()
class MemberResponse:
    """Whether that member left."""

    member_id: str = field(STRING, versions="3+")
    group_instance_id: str | None = field(STRING, versions="3+", nullable="3+", default=None)
    error_code: int = field(INT16, versions="3+")


@response(api_key=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """The error of the whole, and from version 3 on of each member."""

    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    error_code: int = field(INT16)
    members: list[MemberResponse] = field(array(MemberResponse), versions="3+")
