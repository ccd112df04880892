"""API key 10, FindCoordinator: which broker coordinates a group.

Key types: 0 group, 1 transaction, 2 share group.

| version | request | response |
|---|---|---|
| 1 | key type (KIP-98) | throttle time, error message |
| 2 | | throttling happens after the answer (KIP-219) |
| 3 | flexible (KIP-482) | flexible |
| 4 | many keys (KIP-699) | one entry a key |
| 5 | | TRANSACTION_ABORTABLE may be answered (KIP-890) |
| 6 | share groups (KIP-932) | |
"""

from __future__ import annotations

from kohort.schema import (
    INT8,
    INT16,
    INT32,
    STRING,
    array,
    field,
    request,
    response,
    struct,
)


@request(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    """Ask by ``key`` up to version 3, by ``coordinator_keys`` from 4 on."""

    key: str = field(STRING, versions="0-3")
    key_type: int = field(INT8, versions="1+")
    coordinator_keys: list[str] = field(array(STRING), versions="4+")


@struct()
class Coordinator:
    """The broker for one key."""

    key: str = field(STRING, versions="4+")
    node_id: int = field(INT32, versions="4+")
    host: str = field(STRING, versions="4+")
    port: int = field(INT32, versions="4+")
    error_code: int = field(INT16, versions="4+")
    error_message: str | None = field(
        STRING, versions="4+", nullable="4+", default=None, ignorable=True
    )


@response(api_key=10, versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    """One broker up to version 3, ``coordinators`` from 4 on."""

    throttle_time_ms: int = field(INT32, versions="1+", ignorable=True)
    error_code: int = field(INT16, versions="0-3")
    error_message: str | None = field(
        STRING, versions="1-3", nullable="1-3", default=None, ignorable=True
    )
    node_id: int = field(INT32, versions="0-3")
    host: str = field(STRING, versions="0-3")
    port: int = field(INT32, versions="0-3")
    coordinators: list[Coordinator] = field(array(Coordinator), versions="4+")
