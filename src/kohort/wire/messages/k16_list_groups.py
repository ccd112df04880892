"""API key 16, ListGroups: the groups that a broker coordinates.

| version | request | response |
|---|---|---|
| 1 | | throttle time (KIP-124) |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | flexible (KIP-482) | flexible |
| 4 | filter by state (KIP-518) | state |
| 5 | filter by type (KIP-848) | type |
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


@request(api_key=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Ask for groups; an empty filter selects all."""

    states_filter: list[str] = field(array(STRING), versions="4+")
    types_filter: list[str] = field(array(STRING), versions="5+")


@struct()
class ListedGroup:
    """A group in the list."""

    group_id: str = field(STRING)
    protocol_type: str = field(STRING)
    group_state: str = field(STRING, versions="4+", ignorable=True)
    group_type: str = field(STRING, versions="5+", ignorable=True)


@response(api_key=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """The groups found."""

    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    error_code: int = field(INT16)
    groups: list[ListedGroup] = field(array(ListedGroup))
