"""The operations that a client may perform (KIP-430), as bits.

In: nothing. Out: numbers for answers. Must not know: requests. Without an authorizer Kafka reports
every operation of a resource; so does this broker.
"""

from __future__ import annotations

from typing import Final

NOT_ASKED: Final = -(2**31)
"""Authorized operations, if the client did not request them (KIP-430)."""

_OPERATIONS: Final = {
    "read": 3,
    "write": 4,
    "create": 5,
    "delete": 6,
    "alter": 7,
    "describe": 8,
    "cluster action": 9,
    "describe configs": 10,
    "alter configs": 11,
    "idempotent write": 12,
}


def _bits(*names: str) -> int:
    return sum(1 << _OPERATIONS[name] for name in names)


TOPIC_OPERATIONS: Final = _bits(
    *("read", "write", "create", "delete", "alter", "describe"),
    *("describe configs", "alter configs"),
)
GROUP_OPERATIONS: Final = _bits("read", "delete", "describe", "describe configs", "alter configs")
CLUSTER_OPERATIONS: Final = _bits(
    *("create", "alter", "describe", "cluster action"),
    *("describe configs", "alter configs", "idempotent write"),
)
