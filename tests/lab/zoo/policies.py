"""Animals of assignors: whose claims they believe."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tests.lab.zoo import grounds
from tests.lab.zoo.mutation import Mutation, Patch

from kohort.embedded.consumer import encode_sticky_userdata
from kohort.engine.leader_duties import LeaderDuties
from kohort.model.ids import NO_GENERATION, GenerationId, MemberId, TopicPartition
from kohort.policies import claims, consumer_groups, cooperative, sticky
from kohort.policies.spec import GroupSpec


class _EveryClaim:
    """Whoever says that it owns a partition does, for all that anybody else says."""

    def __init__(self, spec: GroupSpec) -> None:
        self._pairs = [(claim, m) for m in spec.member_order() for claim in spec.members[m].owned]

    def items(self) -> list[tuple[TopicPartition, MemberId]]:
        """Claims with who makes them; some partitions come twice."""
        return self._pairs


def _double_claims_are_trusted(patch: Patch) -> None:
    patch.setattr(sticky, "valid_claims", _EveryClaim)
    patch.setattr(cooperative, "claimants", lambda spec: {}, raising=False)


def _claims_of_members_that_missed_a_generation_are_void(patch: Patch) -> None:
    """Only who names the newest generation is heard, as in Kafka's sticky assignors before 3.5."""

    def newest_only(spec: GroupSpec) -> dict[Any, Any]:
        newest = max((m.generation_id for m in spec.members.values() if m.owned), default=-1)
        heard = {
            member_id: m if m.generation_id == newest else replace(m, owned=frozenset())
            for member_id, m in spec.members.items()
        }
        return claims.valid_claims(replace(spec, members=heard))

    patch.setattr(sticky, "valid_claims", newest_only)


def _the_assignor_never_hears_of_generations(patch: Patch) -> None:
    """Members of an eager sticky group claim what they had under no generation, every time."""
    encode = encode_sticky_userdata

    def undated(previous: Collection[TopicPartition], _generation: GenerationId) -> bytes:
        return encode(previous, NO_GENERATION)

    patch.setattr(consumer_groups, "encode_sticky_userdata", undated)


class _NeverEndsError(Exception):
    """No error of kohort's: nobody hears of it."""


def assignor_that_never_ends_on_ties(patch: Patch) -> None:
    """Not an animal: the circumstance of one. Two claims of one age are no case that it knows.

    As in aiokafka, whose sticky assignor tells two claims apart by their generations and by nothing
    else: a leader that meets a tie computes on, and its group waits for it.
    """
    heard, decide = claims.valid_claims, LeaderDuties.decide

    def never_ends(spec: GroupSpec) -> dict[TopicPartition, MemberId]:
        aged = [(p, m.generation_id) for m in spec.members.values() for p in m.owned]
        if len(set(aged)) < len(aged):
            raise _NeverEndsError
        return heard(spec)

    def decides(self: LeaderDuties, *args: Any, **more: Any) -> Any:
        try:
            return decide(self, *args, **more)
        except _NeverEndsError:
            return None

    patch.setattr(sticky, "valid_claims", never_ends)
    patch.setattr(LeaderDuties, "decide", decides)


POLICIES = (
    Mutation(
        name="double claims are trusted",
        incident="KAFKA-12984",
        breaks=frozenset({22, 23}),
        plant=_double_claims_are_trusted,
        ground=grounds.a_newcomer_and_missed_syncs,
        seeds=2,
    ),
    Mutation(
        name="claims of members that missed a generation are void",
        incident="KAFKA-13891",
        breaks=frozenset({28, 49}),
        plant=_claims_of_members_that_missed_a_generation_are_void,
        ground=grounds.missed_syncs_of_a_balanced_group,
        seeds=3,
    ),
    Mutation(
        name="the assignor never hears of generations",
        incident="aio-libs/aiokafka #1176",
        breaks=frozenset({48}),
        not_by={
            23: "it speaks of cooperative hand-offs. aiokafka has eager assignors only: members "
            "give up everything before they join, and what they claim is what they had. A "
            "cooperative member that tells no generation is judged by what it was assigned"
        },
        circumstance=assignor_that_never_ends_on_ties,
        plant=_the_assignor_never_hears_of_generations,
        ground=grounds.missed_syncs_of_sticky_members,
        seeds=5,
    ),
)
