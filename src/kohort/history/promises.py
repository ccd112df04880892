"""What policies promise, by their protocol names: a policy is held to its own promises only.

Names that nobody knows promise nothing beyond what every group must keep. A history may declare
more (``PolicyDeclared``): new policies, or other numbers for known ones. Must not know: assignors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.model.instants import Millis
from kohort.model.world_facts import PolicyDeclared

EAGER: Final = "eager"
"""Members give up everything before they join."""

COOPERATIVE: Final = "cooperative"
"""Members keep what they own while joining; nothing that is claimed is given to another."""

BALANCED: Final = "balanced"
"""No member has more than it must: sizes differ by at most one among equal subscriptions."""

EVEN: Final = "even"
"""Sizes differ by at most one among equal subscriptions; nothing is said about others."""

STICKY: Final = "sticky"
"""No more partitions move than balance asks for, among equal subscriptions."""

COMPLETE: Final = "complete"
"""Every partition of a subscribed topic gets an owner."""

DEFERRING: Final = "deferring"
"""Partitions of a lost member wait for its return."""

INCREMENTAL: Final = "incremental"
"""Partitions move a few at a time."""

KNOWN: Final = frozenset(
    {EAGER, COOPERATIVE, BALANCED, EVEN, STICKY, COMPLETE, DEFERRING, INCREMENTAL}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promises:
    """What a policy is held to."""

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
