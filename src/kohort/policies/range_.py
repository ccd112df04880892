"""Range: each subscriber of a topic gets a contiguous range.

In: a group spec. Out: a plan. Must not know: the partitions that members own, racks. Co-partitioned
topics (same count, same subscribers) are aligned by construction: partition n of each goes to the
same member. The plan is not balanced over many topics.
"""

from __future__ import annotations

from kohort.model.ids import ProtocolName, TopicPartition
from kohort.policies.spec import (
    GroupAssignment,
    GroupSpec,
    Plan,
    RebalanceProtocol,
    TopicSubscribers,
)


class RangeAssignor:
    """Kafka's ``range``: the first members of the order get one partition more."""

    name = ProtocolName("range")
    rebalance_protocol = RebalanceProtocol.EAGER

    def assign(self, spec: GroupSpec) -> Plan:
        """See `policies.spec.Assignor`."""
        subscribers = TopicSubscribers.of(spec)
        plan: GroupAssignment = {member_id: [] for member_id in subscribers.order}
        for topic, members in subscribers.by_topic.items():
            size, extra = divmod(spec.partitions[topic], len(members))
            start = 0
            for position, member_id in enumerate(members):
                end = start + size + (position < extra)
                plan[member_id] += [TopicPartition(topic, n) for n in range(start, end)]
                start = end
        return Plan(plan)
