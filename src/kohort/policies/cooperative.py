"""Cooperative: a sticky plan in two rounds (Design I).

In: a group spec in which claims are what members own and go on processing. Out: the sticky plan
without whatever somebody else still holds. Those members see what they miss, stop it, and rejoin;
the round that follows hands it out. What is held by nobody is handed out at once. Must not know:
who rejoins when.
"""

from __future__ import annotations

from kohort.model.ids import ProtocolName
from kohort.policies.claims import claimants
from kohort.policies.spec import GroupSpec, Plan, RebalanceProtocol
from kohort.policies.sticky import sticky_plan


class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``."""

    name = ProtocolName("cooperative-sticky")
    rebalance_protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, spec: GroupSpec) -> Plan:
        """See `policies.spec.Assignor`.

        A partition also waits for a member whose claim is void: that member may still work on it.
        """
        holders = claimants(spec)
        return Plan(
            {
                member_id: [p for p in partitions if not holders.get(p, frozenset()) - {member_id}]
                for member_id, partitions in sticky_plan(spec).items()
            }
        )
