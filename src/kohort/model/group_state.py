"""The five states of a classic group, by Kafka's names.

Lives in the model since facts, log lines and answers carry it. Which state may follow which is the
coordinator's knowledge (``kohort.coordinator.group``).
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
    """The sync phase: a generation was told, the leader's assignment is awaited."""

    STABLE = "Stable"
    """Every member can have its assignment, and that assignment is durable."""

    DEAD = "Dead"
    """About to vanish: its tombstone is being written."""
