"""What a group went through, put together from its facts: generations, rebalances, ownership.

In: recorded facts, in order. Out: for each group its generations with members, protocol and
assignment; its rebalances with cause and duration; who owned which partition from when to when, as
applications were told where they are recorded, else as generations assigned. Must not know: checks,
files, what any of it costs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kohort.history.coordinator_side import targets_of
from kohort.history.views import Partitions
from kohort.model import facts as f
from kohort.model.client_facts import (
    CallbackEnded,
    CallbackKind,
    CallbackStarted,
    ProcessKilled,
    ProcessStarted,
    ProcessStopped,
)
from kohort.model.facts import RebalanceCause
from kohort.model.history_record import Recorded
from kohort.model.ids import GenerationId, GroupId, MemberId, TopicPartition
from kohort.model.instants import Instant
from kohort.model.wire_facts import CoordinatorStopped


@dataclass(slots=True, kw_only=True)
class Generation:
    """One generation of a group."""

    number: GenerationId
    protocol_name: str
    leader_id: MemberId
    member_ids: tuple[MemberId, ...]
    opened_at: Instant
    stable_at: Instant | None = None
    """None: its members never got their assignment."""
    targets: dict[MemberId, Partitions] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Rebalance:
    """From the event that started it to the assignment, the empty group, or the next cause."""

    cause: RebalanceCause
    member_ids: tuple[MemberId, ...]
    """Those who caused it."""
    started_at: Instant
    ended_at: Instant | None = None
    generation_id: GenerationId | None = None
    """The generation it led to; None: it was overtaken, or emptied the group."""

    @property
    def micros(self) -> int | None:
        """How long it took."""
        return None if self.ended_at is None else self.ended_at - self.started_at


@dataclass(slots=True, kw_only=True)
class OwnershipInterval:
    """A partition in one owner's hands."""

    partition: TopicPartition
    owner: str
    """The process that was told, or, where none is recorded, the member id."""
    begin: Instant
    end: Instant | None = None
    """None: still at the end of the history."""


@dataclass(slots=True, kw_only=True)
class GroupStory:
    """Everything about one group."""

    group_id: GroupId
    generations: list[Generation] = field(default_factory=list)
    rebalances: list[Rebalance] = field(default_factory=list)
    told: list[OwnershipInterval] = field(default_factory=list)
    """Ownership as applications were told."""
    assigned: list[OwnershipInterval] = field(default_factory=list)
    """Ownership as generations assigned it."""

    @property
    def ownership(self) -> list[OwnershipInterval]:
        """As applications were told if any is recorded, else as assigned."""
        return self.told or self.assigned


class Reconstruction:
    """Puts stories together, fact by fact; ``stories`` may be read at any time."""

    def __init__(self) -> None:
        self.stories: dict[GroupId, GroupStory] = {}
        self._told: dict[tuple[str, TopicPartition], OwnershipInterval] = {}
        self._assigned: dict[tuple[GroupId, TopicPartition], OwnershipInterval] = {}

    def feed(self, recorded: Recorded) -> None:
        """One more fact."""
        fact, at = recorded.fact, recorded.at
        match fact:
            case f.RebalanceStarted() | f.JoinPhaseCompleted() | f.GroupEmptied():
                self._phase(fact, at)
            case f.GroupStabilized():
                self._stabilized(fact, at)
            case CallbackStarted(kind=CallbackKind.ASSIGNED):
                self._owns(recorded.source, fact, at)
            case CallbackEnded():
                self._owns_no_more(recorded.source, fact, at)
            case ProcessStarted() | ProcessStopped() | ProcessKilled():
                self._ended(recorded.source, at)
            case f.GroupDeleted():
                self._end_assigned(fact.group_id, at)
            case CoordinatorStopped():
                for story in self.stories.values():
                    _end_rebalance(story, at, None)
            case _:
                pass

    def _owns_no_more(self, source: str, fact: CallbackEnded, at: Instant) -> None:
        if fact.kind is not CallbackKind.ASSIGNED:
            for partition in fact.partitions:
                self._end_told(source, partition, at)

    def _ended(self, ended: str, at: Instant) -> None:
        for source, partition in list(self._told):
            if source == ended:
                self._end_told(source, partition, at)

    def _story(self, group_id: GroupId) -> GroupStory:
        return self.stories.setdefault(group_id, GroupStory(group_id=group_id))

    def _phase(
        self, fact: f.RebalanceStarted | f.JoinPhaseCompleted | f.GroupEmptied, at: Instant
    ) -> None:
        story = self._story(fact.group_id)
        if isinstance(fact, f.RebalanceStarted):
            _end_rebalance(story, at, None)
            story.rebalances.append(
                Rebalance(cause=fact.cause, member_ids=fact.member_ids, started_at=at)
            )
        elif isinstance(fact, f.GroupEmptied):
            _end_rebalance(story, at, None)
            self._end_assigned(fact.group_id, at)
        else:
            story.generations.append(
                Generation(
                    number=fact.generation_id,
                    protocol_name=fact.protocol_name,
                    leader_id=fact.leader_id,
                    member_ids=fact.member_ids,
                    opened_at=at,
                )
            )

    def _stabilized(self, fact: f.GroupStabilized, at: Instant) -> None:
        story = self._story(fact.group_id)
        _end_rebalance(story, at, fact.generation_id)
        if not story.generations or story.generations[-1].number != fact.generation_id:
            return
        generation = story.generations[-1]
        generation.stable_at = at
        generation.targets = targets_of(fact) or {}
        owners = {tp: m for m, mine in generation.targets.items() for tp in sorted(mine)}
        for (group_id, partition), held in list(self._assigned.items()):
            if group_id == fact.group_id and owners.get(partition) != held.owner:
                held.end = at
                del self._assigned[group_id, partition]
        for partition, member_id in owners.items():
            key = (fact.group_id, partition)
            if key not in self._assigned:
                self._assigned[key] = interval = OwnershipInterval(
                    partition=partition, owner=member_id, begin=at
                )
                story.assigned.append(interval)

    def _owns(self, source: str, fact: CallbackStarted, at: Instant) -> None:
        for partition in fact.partitions:
            if (source, partition) not in self._told:
                interval = OwnershipInterval(partition=partition, owner=source, begin=at)
                self._told[source, partition] = interval
                self._story(fact.group_id).told.append(interval)

    def _end_told(self, source: str, partition: TopicPartition, at: Instant) -> None:
        held = self._told.pop((source, partition), None)
        if held is not None:
            held.end = at

    def _end_assigned(self, group_id: GroupId, at: Instant) -> None:
        for key in [key for key in self._assigned if key[0] == group_id]:
            self._assigned.pop(key).end = at


def _end_rebalance(story: GroupStory, at: Instant, generation_id: GenerationId | None) -> None:
    if story.rebalances and story.rebalances[-1].ended_at is None:
        story.rebalances[-1].ended_at = at
        story.rebalances[-1].generation_id = generation_id


def reconstruct(history: Iterable[Recorded]) -> dict[GroupId, GroupStory]:
    """The stories of all groups of a history."""
    reconstruction = Reconstruction()
    for recorded in history:
        reconstruction.feed(recorded)
    return reconstruction.stories
