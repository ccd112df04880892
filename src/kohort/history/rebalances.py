"""Collects the rebalances of each group: cause, duration, moves, assigned owners, pauses.

In: facts of a coordinator, in order. Out: one ``GroupTimeline`` for each group. Must not know:
facts of clients, checks, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kohort.history.coordinator_side import targets_of
from kohort.history.cost_values import OwnershipInterval, Pause, Rebalance
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
from kohort.model.ids import GroupId, MemberId, TopicPartition
from kohort.model.instants import Instant
from kohort.model.wire_facts import CoordinatorStopped


@dataclass(slots=True)
class _Holding:
    """The present owner of a partition, by its stable name, and its progress."""

    owner: str
    begin: Instant
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
        self._closed: list[OwnershipInterval] = []
        self._holdings: dict[TopicPartition, _Holding] = {}
        self._last_owners: dict[TopicPartition, str] = {}
        self._instances: dict[MemberId, str] = {}

    def ownership(self, until: Instant) -> list[OwnershipInterval]:
        """The owners of each partition, as assigned; open intervals end at ``until``."""
        still = [self._interval(tp, held, until) for tp, held in self._holdings.items()]
        return [*self._closed, *still]

    def feed(self, recorded: Recorded) -> None:
        """Take the next fact of this group."""
        fact, at = recorded.fact, recorded.at
        match fact:
            case MemberAdded() | StaticMemberReplaced():
                if fact.group_instance_id is not None:
                    self._instances[fact.member_id] = fact.group_instance_id
            case RebalanceStarted():
                self.end_rebalance(at)
                self.rebalances.append(
                    Rebalance(cause=fact.cause, member_ids=fact.member_ids, started_at=at)
                )
            case JoinPhaseCompleted():
                if self.rebalances and self.rebalances[-1].opened_at is None:
                    self.rebalances[-1].opened_at = at
            case GroupStabilized():
                self._stabilized(fact, at)
            case GroupEmptied() | GroupDeleted():
                self.end_rebalance(at)
                self._assign({}, at)
            case OffsetsCommitted():
                self._committed(fact, at)
            case _:
                pass

    def end_rebalance(self, at: Instant) -> None:
        """End a rebalance under way; it has no generation."""
        if self.rebalances and self.rebalances[-1].ended_at is None:
            self.rebalances[-1].ended_at = at

    def _stabilized(self, fact: GroupStabilized, at: Instant) -> None:
        targets = targets_of(fact) or {}
        moved = self._assign(
            {tp: self._name(member) for member, mine in targets.items() for tp in mine}, at
        )
        if self.rebalances and self.rebalances[-1].ended_at is None:
            last = self.rebalances[-1]
            last.ended_at, last.generation_id, last.moved = at, fact.generation_id, moved

    def _name(self, member_id: MemberId) -> str:
        return self._instances.get(member_id, member_id)

    def _assign(self, owners: dict[TopicPartition, str], at: Instant) -> int:
        """Set the owners of a new generation; returns the number of moved partitions.

        A partition that loses its owner counts as moved only when another owner gets it.
        """
        for tp, held in list(self._holdings.items()):
            if owners.get(tp) != held.owner:
                self._closed.append(self._interval(tp, held, at))
                del self._holdings[tp]
        for tp in sorted(owners.keys() - self._holdings.keys()):
            self._holdings[tp] = _Holding(owner=owners[tp], begin=at)
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

    @staticmethod
    def _interval(tp: TopicPartition, held: _Holding, end: Instant) -> OwnershipInterval:
        return OwnershipInterval(
            partition=tp, owner=held.owner, begin=held.begin, ready=held.begin, end=end
        )


def timelines(history: Iterable[Recorded]) -> dict[GroupId, GroupTimeline]:
    """The timelines of all groups of a history."""
    found: dict[GroupId, GroupTimeline] = {}
    for recorded in history:
        group_id = getattr(recorded.fact, "group_id", None)
        if group_id is not None:
            found.setdefault(group_id, GroupTimeline()).feed(recorded)
        elif isinstance(recorded.fact, CoordinatorStopped):
            for timeline in found.values():
                timeline.end_rebalance(recorded.at)
    return found


def longest_across(pauses: Iterable[Pause], rebalances: Sequence[Rebalance]) -> Pause | None:
    """The longest pause that overlaps a finished rebalance; None if there is none."""
    spans = [(r.started_at, r.ended_at) for r in rebalances if r.ended_at is not None]
    touched = [p for p in pauses if any(p.begin <= end and begin <= p.end for begin, end in spans)]
    return max(touched, key=lambda pause: pause.micros, default=None)
