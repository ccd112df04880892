"""The five states of a classic group, by Kafka's names.

In: nothing. Out: ``GroupState``, for facts, log lines and answers. Must not know: the legal
transitions, which ``kohort.coordinator.group`` holds.
"""

from __future__ import annotations

from enum import StrEnum


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
