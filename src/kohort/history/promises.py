"""The promises of policies, by protocol name.

In: nothing. Out: the promises that a policy is judged by, in addition to those of every group.
Unknown names have none. Must not know: assignors.
"""

from __future__ import annotations

from typing import Final

from kohort.model.ids import ProtocolName
from kohort.model.world_facts import PolicyDeclared

EAGER: Final = "eager"
"""Members give up all partitions before they join."""

COOPERATIVE: Final = "cooperative"
"""Members keep their partitions while they join; a claimed partition gets no other owner."""

BALANCED: Final = "balanced"
"""Sizes differ by at most one among equal subscriptions, and unequal ones are balanced too."""

EVEN: Final = "even"
"""Sizes differ by at most one among equal subscriptions; there is no promise for unequal ones."""

STICKY: Final = "sticky"
"""Among equal subscriptions no more partitions move than balance requires."""

COMPLETE: Final = "complete"
"""Every partition of a subscribed topic gets an owner."""

DEFERRING: Final = "deferring"
"""Partitions of a lost member wait for its return."""

INCREMENTAL: Final = "incremental"
"""Partitions move a few at a time."""

HANDING_OVER: Final = "handing-over"
"""Partitions of living members move to members with warm copies."""

NO_PROMISES: Final = PolicyDeclared(protocol_name=ProtocolName(""), promises=())

BUILT_IN: Final[dict[str, PolicyDeclared]] = {
    name: PolicyDeclared(protocol_name=ProtocolName(name), promises=words)
    for name, words in {
        "range": (EAGER, COMPLETE),
        "roundrobin": (EAGER, COMPLETE, EVEN),
        "sticky": (EAGER, COMPLETE, BALANCED, STICKY),
        "cooperative-sticky": (COOPERATIVE, COMPLETE, BALANCED, STICKY),
    }.items()
}
"""A history may declare others, or these with other limits."""
