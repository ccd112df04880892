"""Messages of Spark's own Kafka source about the group of a query.

In: nothing. Out: `SPARK`. Must not know: frames, other programs.
"""

from __future__ import annotations

from typing import Final

from kohort.explain.events import Kind

SPARK: Final = (
    (Kind.GROUP_CHOSEN, "Kafka option 'kafka.group.id' has been set on this query, it is…"),
    (
        Kind.STREAM_LOST,
        "Previously tracked partitions <partitions> been revoked by Kafka because of consumer "
        "rebalance. This is mostly due to another stream with same group id joined…",
    ),
)
