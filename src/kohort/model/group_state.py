"""The five states of a classic group, by Kafka's names.

In: nothing. Out: ``GroupState``, for facts, log lines and answers. Must not know: the legal
transitions, which ``kohort.coordinator.group`` holds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """State of a classic group; the value is what Kafka's tools print."""

    EMPTY = "Empty"
    """No members. Offsets may exist; ids may have been handed out."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: waiting until every member has asked to join again."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: members have their generation, the leader's assignment is missing."""

    STABLE = "Stable"
    """Every member can have its assignment, and that assignment is durable."""

    DEAD = "Dead"
    """The group is being removed: its tombstone is being written."""


EMPTY: Final = GroupState.EMPTY
PREPARING_REBALANCE: Final = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE: Final = GroupState.COMPLETING_REBALANCE
STABLE: Final = GroupState.STABLE
DEAD: Final = GroupState.DEAD
"""Names outside of the class, for hot paths: each lookup in an enum costs time."""
