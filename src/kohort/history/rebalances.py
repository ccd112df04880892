"""Collects the rebalances of a group: cause, duration, moves, pauses of its owners.

In: facts of a coordinator, in order. Out: a ``GroupTimeline``. Must not know: facts of clients,
checks, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kohort.history.coordinator_side import targets_of
from kohort.history.cost_values import Pause, Rebalance
from kohort.model.facts import (
    GroupDeleted,
    GroupEmptied,
    GroupStabilized,
    JoinPhaseCompleted,
    MemberAdded,
    OffsetsCommitted,
    RebalanceStarted,
    StaticMemberReplaced,
)
from kohort.model.history_record import Recorded
from kohort.model.ids import MemberId, TopicPartition
from kohort.model.instants import Instant


@dataclass(slots=True)
class _Holding:
    """The present owner of a partition, by its stable name, and its progress."""

    owner: str
    committed: tuple[Instant, int] | None = None


class GroupTimeline:
    """The rebalances of one group, their owners and pauses; it may be read after each fact.

    An owner is named by its instance id if it is a static member, else by its member id. So a
    process that starts again without an instance id is another owner.
    """

    def __init__(self) -> None:
        self.rebalances: list[Rebalance] = []
        self.pauses: list[Pause] = []
        """Times between two commits of one owner that kept the partition."""
        self._holdings: dict[TopicPartition, _Holding] = {}
        self._last_owners: dict[TopicPartition, str] = {}
        self._instances: dict[MemberId, str] = {}

    def feed(self, recorded: Recorded) -> None:
        """Take the next fact of this group."""
        fact, at = recorded.fact, recorded.at
        match fact:
            case MemberAdded() | StaticMemberReplaced():
                if fact.group_instance_id is not None:
                    self._instances[fact.member_id] = fact.group_instance_id
            case RebalanceStarted():
                self._end_rebalance(at)
                self.rebalances.append(
                    Rebalance(cause=fact.cause, member_ids=fact.member_ids, started_at=at)
                )
            case JoinPhaseCompleted():
                if self.rebalances and self.rebalances[-1].opened_at is None:
                    self.rebalances[-1].opened_at = at
            case GroupStabilized():
                self._stabilized(fact, at)
            case GroupEmptied() | GroupDeleted():
                self._end_rebalance(at)
                self._assign({})
            case OffsetsCommitted():
                self._committed(fact, at)
            case _:
                pass

    def _end_rebalance(self, at: Instant) -> None:
        """End a rebalance under way; it has no generation."""
        if self.rebalances and self.rebalances[-1].ended_at is None:
            self.rebalances[-1].ended_at = at

    def _stabilized(self, fact: GroupStabilized, at: Instant) -> None:
        targets = targets_of(fact) or {}
        moved = self._assign(
            {tp: self._name(member) for member, mine in targets.items() for tp in mine}
        )
        if self.rebalances and self.rebalances[-1].ended_at is None:
            last = self.rebalances[-1]
            last.ended_at, last.generation_id, last.moved = at, fact.generation_id, moved

    def _name(self, member_id: MemberId) -> str:
        return self._instances.get(member_id, member_id)

    def _assign(self, owners: dict[TopicPartition, str]) -> int:
        """Set the owners of a new generation; returns the number of moved partitions.

        A partition that loses its owner counts as moved only when another owner gets it.
        """
        self._holdings = {
            tp: held
            if (held := self._holdings.get(tp)) is not None and held.owner == owner
            else _Holding(owner)
            for tp, owner in owners.items()
        }
        moved = sum(self._last_owners.get(tp, owner) != owner for tp, owner in owners.items())
        self._last_owners.update(owners)
        return moved

    def _committed(self, fact: OffsetsCommitted, at: Instant) -> None:
        name = self._name(fact.member_id)
        for tp, offset in fact.offsets:
            held = self._holdings.get(tp)
            if held is None or held.owner != name:
                continue
            before, held.committed = held.committed, (at, offset)
            if before is not None and before[1] < offset:
                self.pauses.append(
                    Pause(partition=tp, owner=name, begin=before[0], end=at, offset=before[1])
                )


def longest_across(pauses: Iterable[Pause], rebalances: Sequence[Rebalance]) -> Pause | None:
    """The longest pause that overlaps a finished rebalance; None if there is none."""
    spans = [(r.started_at, r.ended_at) for r in rebalances if r.ended_at is not None]
    touched = [p for p in pauses if any(p.begin <= end and begin <= p.end for begin, end in spans)]
    return max(touched, key=lambda pause: pause.micros, default=None)
