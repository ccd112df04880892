"""Round robin: all partitions in order go to the subscribers in turn.

In: a group spec. Out: a plan. Must not know: the partitions that members own. The plan is poor with
unequal subscriptions, and not sticky.
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


class RoundRobinAssignor:
    """Kafka's ``roundrobin``."""

    name = ProtocolName("roundrobin")
    rebalance_protocol = RebalanceProtocol.EAGER

    def assign(self, spec: GroupSpec) -> Plan:
        """See `policies.spec.Assignor`."""
        subscribers = TopicSubscribers.of(spec)
        order = subscribers.order
        plan: GroupAssignment = {member_id: [] for member_id in order}
        position = 0
        for topic in subscribers.by_topic:
            for partition in range(spec.partitions[topic]):
                while topic not in spec.members[order[position]].topics:
                    position = (position + 1) % len(order)
                plan[order[position]].append(TopicPartition(topic, partition))
                position = (position + 1) % len(order)
        return Plan(plan)
