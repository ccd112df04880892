"""The promises of policies, by protocol name.

In: names, and ``PolicyDeclared`` facts with new policies or other limits. Out: the promises that a
policy is judged by, in addition to those of every group. Unknown names have none. Must not know:
assignors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.model.instants import Millis
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """The promises of one policy."""

    words: frozenset[str] = frozenset()
    deferral_ms: Millis = Millis(0)
    moves_per_step: int = 0
    step_interval_ms: Millis = Millis(0)

    def __contains__(self, word: str) -> bool:
        return word in self.words


NO_PROMISES: Final = Promises()

BUILT_IN: Final[dict[str, Promises]] = {
    "range": Promises(words=frozenset({EAGER, COMPLETE})),
    "roundrobin": Promises(words=frozenset({EAGER, COMPLETE, EVEN})),
    "sticky": Promises(words=frozenset({EAGER, COMPLETE, BALANCED, STICKY})),
    "cooperative-sticky": Promises(words=frozenset({COOPERATIVE, COMPLETE, BALANCED, STICKY})),
}


def declared(fact: PolicyDeclared) -> Promises:
    """The promises that a history declares."""
    return Promises(
        words=frozenset(fact.promises),
        deferral_ms=fact.deferral_ms,
        moves_per_step=fact.moves_per_step,
        step_interval_ms=fact.step_interval_ms,
    )
