"""Round robin: all partitions in order go to the subscribers in turn.

In: a group spec. Out: a plan. Must not know: the partitions that members own. The plan is poor with
unequal subscriptions, and not sticky.
"""

from __future__ import annotations

from kohort.model.ids import ProtocolName, TopicPartition
from kohort.policies.spec import Assignor, GroupAssignment, GroupSpec, Plan


def _plan(spec: GroupSpec) -> Plan:
    order = spec.member_order()
    plan: GroupAssignment = {member_id: [] for member_id in order}
    position = 0
    for topic in spec.wanted_topics():
        for partition in range(spec.partitions[topic]):
            while topic not in spec.members[order[position]].topics:
                position = (position + 1) % len(order)
            plan[order[position]].append(TopicPartition(topic, partition))
            position = (position + 1) % len(order)
    return Plan(plan)


ROUND_ROBIN = Assignor(ProtocolName("roundrobin"), _plan)
"""Kafka's ``roundrobin``."""
