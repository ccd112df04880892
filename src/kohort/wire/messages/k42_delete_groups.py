"""API key 42, DeleteGroups: forget groups without members, and their offsets.

| version | request | response |
|---|---|---|
| 1 | | throttling happens after the answer (KIP-219) |
| 2 | flexible (KIP-482) | flexible |
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


@request(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    """Delete groups by id."""

    groups_names: list[str] = field(array(STRING))


@struct()
class DeletableGroupResult:
    """The result for one group."""

    group_id: str = field(STRING)
    error_code: int = field(INT16)


@response(api_key=42, versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    """One result for each group."""

    throttle_time_ms: int = field(INT32)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult))
