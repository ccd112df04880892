"""Messages of frameworks that run a client: the lines of their rebalance listeners.

In: nothing. Out: a table for each framework. Must not know: frames, other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

SPRING: Final = (
    (Kind.SYNCED, "partitions assigned: <partitions>"),
    (Kind.REVOKED, "partitions revoked: <partitions>"),
    (Kind.REVOKED, "partitions revoked:<partitions>"),
    (Kind.LOST, "partitions lost: <partitions>"),
)
CLICKHOUSE: Final = (
    (Kind.SYNCED, "Topics/partitions assigned: <assigned>"),
    (Kind.REVOKED, "Rebalance initiated. Revoking partitions: <revoked>"),
    (Kind.REVOKED, "Rebalance callback: Revoking partitions: <revoked>"),
    (Kind.LEAVING, "Consumer left the group<rest>"),
)
ARROYO: Final = (
    (Kind.SYNCED, "New partitions assigned: <assigned>"),
    (Kind.REVOKED, "Partitions to revoke: <revoked>"),
    (Kind.PROGRESS, "Partition revocation complete<rest>"),
)
CONFLUENT_GO: Final = (
    (Kind.SYNCED, "AssignedPartitions: <assigned>"),
    (Kind.REVOKED, "RevokedPartitions: <revoked>"),
)
FRAMEWORKS: Final = (
    ("Spring", SPRING),
    ("ClickHouse", CLICKHOUSE),
    ("arroyo", ARROYO),
    ("confluent-kafka-go", CONFLUENT_GO),
)
