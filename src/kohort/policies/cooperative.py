"""Cooperative: a sticky plan in two rounds (Design I).

In: a group spec; members own their claims and keep working on them. Out: the sticky plan without
partitions that another member still holds. Must not know: the times of rejoins. The holders see
that these partitions are missing, give them up and rejoin; the next round assigns them. Partitions
without a holder are assigned at once.
"""

from __future__ import annotations

from kohort.model.ids import ProtocolName
from kohort.policies.spec import GroupSpec, Plan, RebalanceProtocol
from kohort.policies.sticky import sticky_shares


class CooperativeStickyAssignor:
    """Kafka's ``cooperative-sticky``."""

    name = ProtocolName("cooperative-sticky")
    rebalance_protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, spec: GroupSpec) -> Plan:
        """See `policies.spec.Assignor`.

        A partition also waits for a member with a void claim: that member may still work on it.
        """
        return Plan(sticky_shares(spec, withhold=True))
