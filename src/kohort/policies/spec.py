"""The input and the output of an assignor, and its only signature.

In: nothing. Out: the members with the partitions that they want and hold, the number of partitions
of each topic; a plan. Must not know: bytes of assignments, requests, timers, the rounds until a
plan is reached. Nothing here depends on the insertion order of maps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from kohort.model.errors import ConfigError
from kohort.model.ids import (
    NO_GENERATION,
    GenerationId,
    GroupInstanceId,
    MemberId,
    ProtocolName,
    TopicPartition,
)
from kohort.model.instants import Millis

Racks: TypeAlias = Mapping[str, Sequence[frozenset[str]]]
"""For each topic, the racks with a replica of each partition."""

Say: TypeAlias = Callable[[str], object]
"""Takes a sentence for a log."""


def say_nothing(sentence: str) -> None:
    """Write nothing: the default for policies without a log."""
    del sentence


MAX_MEMBERS = 65_533
"""The same limit as in franz-go: a larger group gets a clear error instead of an overflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """One member: its topics, the partitions that it claims, and the generation of the claims.

    Claims come from other programs: they may name unknown topics, absurd partitions, or partitions
    that another member claims, too.
    """

    topics: frozenset[str]
    owned: Set[TopicPartition] = frozenset()
    generation_id: GenerationId = NO_GENERATION
    group_instance_id: GroupInstanceId | None = None
    rack_id: str | None = None
    user_data: bytes | None = None
    """The userdata of the member's subscription, for the assignor that the group uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group at the moment of assignment; topics without a partition count do not exist.

    Raises:
        ConfigError: with more than MAX_MEMBERS members.
    """

    members: Mapping[MemberId, MemberSpec]
    partitions: Mapping[str, int]
    racks: Racks = field(default_factory=dict)
    """For each topic, the racks with a replica of each partition; empty if they are unknown."""
    record_bytes: int = 0
    """Estimated size of the coordinator's record of this group, without the assignments.

    A broker refuses a record above its message limit (1,048,588 bytes by default), so an assignor
    that adds userdata keeps the sum of record, assignments and userdata below the limit.
    """

    def __post_init__(self) -> None:
        if len(self.members) > MAX_MEMBERS:
            raise ConfigError(
                f"a group of {len(self.members)} members cannot be assigned: the limit is "
                f"{MAX_MEMBERS}; split the group"
            )

    def instances(self) -> dict[MemberId, GroupInstanceId]:
        """The instance id of each static member."""
        return {
            member_id: member.group_instance_id
            for member_id, member in self.members.items()
            if member.group_instance_id is not None
        }

    def member_order(self) -> list[MemberId]:
        """Static members by instance id, then dynamic ones by member id (Kafka's order)."""
        members = self.members

        def key(member_id: MemberId) -> tuple[bool, str, str]:
            instance = members[member_id].group_instance_id
            return (instance is None, instance or "", member_id)

        return sorted(members, key=key)

    def wanted_topics(self) -> list[str]:
        """Existing topics that any member wants, sorted."""
        return self.existing(member.topics for member in self.members.values())

    def existing(self, subscriptions: Iterable[frozenset[str]]) -> list[str]:
        """Existing topics in any of these sets, sorted."""
        wanted = frozenset[str]().union(*set(subscriptions))
        return sorted(t for t in wanted if self.partitions.get(t, 0) > 0)

    def subscriptions(self) -> dict[MemberId, frozenset[str]]:
        """The topics of each member; equal sets are one object, so they are compared once."""
        known: dict[frozenset[str], frozenset[str]] = {}
        return {
            member_id: known.setdefault(member.topics, member.topics)
            for member_id, member in self.members.items()
        }

    def racks_that_count(self) -> Racks:
        """The racks of members that have a replica; none if racks make no difference (KIP-881).

        They make none if all partitions have replicas in all racks of members.
        """
        mine = frozenset(m.rack_id for m in self.members.values() if m.rack_id)
        if not mine or not self.racks:
            return {}
        found = {
            topic: [racks & mine for racks in self.racks.get(topic, ())]
            for topic in self.wanted_topics()
        }
        known = [racks for each in found.values() for racks in each]
        return found if any(known) and any(racks != mine for racks in known) else {}


GroupAssignment: TypeAlias = dict[MemberId, list[TopicPartition]]
"""Partitions for every member of the spec, sorted; an empty list for a member without any."""

Shares: TypeAlias = Mapping[MemberId, Collection[TopicPartition]]
"""The same in any form: large groups have a `PartitionSet` for each member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignAgain:
    """An assignor wants another rebalance after some time."""

    after_ms: Millis
    reason: str
    """Goes to the coordinator with the leader's JoinGroup (KIP-800)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An assignor's decision for one generation."""

    partitions: Shares
    user_data: Mapping[MemberId, bytes] = field(default_factory=dict)
    """Bytes that travel inside the assignments of these members."""
    again: AssignAgain | None = None


@dataclass(frozen=True, slots=True)
class EncodedPlan:
    """A plan with one assignment in bytes for each member, as SyncGroup carries it."""

    assignments: Mapping[MemberId, bytes]
    again: AssignAgain | None = None
    memory: object = None
    """The assigner gets this back with its next decision, if this plan comes into force."""
    racks: Racks = field(default_factory=dict)
    """The racks of replicas, if the plan depends on them."""


@dataclass(frozen=True, slots=True)
class Assignor:
    """A policy for one round."""

    name: ProtocolName
    """The name on the wire, by which the group knows the policy."""
    assign: Callable[[GroupSpec], Plan]
    """Decides. Pure: the same spec gives the same plan in every process."""
    cooperative: bool = False
    """Whether members keep their partitions while they join, and later give up only those that the
    new assignment withholds; otherwise they give up everything before they join."""


def subscribers(spec: GroupSpec, order: Iterable[MemberId]) -> dict[str, list[MemberId]]:
    """The subscribers of each existing wanted topic, in this order of the members."""
    found: dict[str, list[MemberId]] = {topic: [] for topic in spec.wanted_topics()}
    for member_id in order:
        for topic in spec.members[member_id].topics & found.keys():
            found[topic].append(member_id)
    return found
