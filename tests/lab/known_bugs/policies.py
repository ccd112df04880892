"""Known bugs of assignors: which claims they accept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tests.lab.known_bugs import scenarios
from tests.lab.known_bugs.known_bug import KnownBug, Patch

from kohort.embedded.consumer import encode_sticky_userdata
from kohort.engine.leader_duties import LeaderDuties
from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, TopicPartition
from kohort.policies import consumer_groups, losses, sticky
from kohort.policies.losses import LeaderMemory
from kohort.policies.numbering import Claims, Numbering
from kohort.policies.spec import GroupSpec, Shares


def _double_claims_are_trusted(patch: Patch) -> None:
    """All claims of all members count, also those that contradict each other; none is withheld."""
    honest = Numbering.claims

    def all_of_them(self: Numbering, order: Sequence[MemberId]) -> Claims:
        found = honest(self, order)
        return replace(found, made=[[] for _ in order], rightful=found.made)

    patch.setattr(Numbering, "claims", all_of_them)


def _claims_of_members_that_missed_a_generation_are_void(patch: Patch) -> None:
    """Only claims of the newest generation count, as in Kafka's sticky assignors before 3.5."""
    honest = Numbering.claims

    def newest_only(self: Numbering, order: Sequence[MemberId]) -> Claims:
        found, members = honest(self, order), self.spec.members
        newest = max((m.generation_id for m in members.values() if m.owned), default=-1)
        heard = [
            mine if members[member_id].generation_id == newest else []
            for member_id, mine in zip(order, found.rightful, strict=True)
        ]
        return replace(found, rightful=heard, left=self.left(heard))

    patch.setattr(Numbering, "claims", newest_only)


def _the_assignor_never_hears_of_generations(patch: Patch) -> None:
    """Members of an eager sticky group send their claims without a generation."""
    encode = encode_sticky_userdata

    def undated(previous: Collection[TopicPartition], _generation: GenerationId) -> bytes:
        return encode(previous, NO_GENERATION)

    patch.setattr(consumer_groups, "encode_sticky_userdata", undated)


class _NeverEndsError(Exception):
    """Ends the computation of the plan; the leader sends no assignment."""


def assignor_never_ends_on_ties(patch: Patch) -> None:
    """A condition: the assignor never ends if two claims have the same generation.

    This is aiokafka's sticky assignor. It compares claims by their generation only. The group waits
    for the assignment of such a leader.
    """
    shares, decide = sticky.sticky_shares, LeaderDuties.decide

    def never_ends(spec: GroupSpec) -> Shares:
        aged = [(p, m.generation_id) for m in spec.members.values() for p in m.owned]
        if len(set(aged)) < len(aged):
            raise _NeverEndsError
        return shares(spec)

    def decides(self: LeaderDuties, *args: Any, **more: Any) -> Any:
        try:
            return decide(self, *args, **more)
        except _NeverEndsError:
            return None

    patch.setattr(sticky, "sticky_shares", never_ends)
    patch.setattr(LeaderDuties, "decide", decides)


def _whoever_missed_its_assignment_is_gone(patch: Patch) -> None:
    """The leader takes each partition that nobody claims for one of a lost member."""

    def lost(
        spec: GroupSpec, memory: LeaderMemory, free: frozenset[TopicPartition]
    ) -> dict[int, frozenset[TopicPartition]]:
        del spec
        found: dict[int, set[TopicPartition]] = {}
        for partition in free & memory.owners.keys():
            wait_id = memory.wait_ids[memory.owners[partition]]
            found.setdefault(wait_id, set()).add(partition)
        return {wait_id: frozenset(mine) for wait_id, mine in found.items()}

    patch.setattr(losses, "_lost_by_memory", lost)


POLICIES = (
    KnownBug(
        name="after a failed SyncGroup the leader counts a worker as departed",
        incident="KAFKA-9848",
        breaks=frozenset({32}),
        not_by={
            35: "the wait has a deadline, and the member gets the partitions after it, so they "
            "have an owner again within the time that promise 35 permits"
        },
        plant=_whoever_missed_its_assignment_is_gone,
        scenario=scenarios.missed_syncs_while_partitions_wait,
        seeds=3,
    ),
    KnownBug(
        name="two members that claim one partition both keep it",
        incident="KAFKA-12984",
        breaks=frozenset({22, 23}),
        plant=_double_claims_are_trusted,
        scenario=scenarios.a_newcomer_and_missed_syncs,
        seeds=2,
    ),
    KnownBug(
        name="members that missed a generation lose their claims",
        incident="KAFKA-13891",
        breaks=frozenset({28, 30}),
        not_by={
            49: "an owner keeps its partitions beside older claims, so void claims of others "
            "withhold nothing from anybody, and no further rebalance follows"
        },
        plant=_claims_of_members_that_missed_a_generation_are_void,
        scenario=scenarios.missed_syncs_of_a_balanced_group,
        seeds=3,
    ),
    KnownBug(
        name="claims carry no generation",
        incident="aio-libs/aiokafka #1176",
        breaks=frozenset({48}),
        not_by={
            23: "promise 23 is about cooperative assignors; aiokafka has eager assignors only. Its "
            "members give up all partitions before they join and claim their previous ones"
        },
        condition=assignor_never_ends_on_ties,
        plant=_the_assignor_never_hears_of_generations,
        scenario=scenarios.missed_syncs_of_sticky_members,
        seeds=5,
    ),
)
