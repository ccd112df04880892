"""Animals of assignors: whose claims they believe."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from tests.lab.zoo import grounds
from tests.lab.zoo.mutation import Mutation, Patch

from kohort.embedded.consumer import encode_sticky_userdata
from kohort.model.ids import NO_GENERATION, GenerationId, TopicPartition
from kohort.policies import claims, consumer_groups, cooperative, sticky
from kohort.policies.spec import GroupSpec


def _double_claims_are_trusted(patch: Patch) -> None:
    def all_claims(spec: Any) -> dict[Any, Any]:
        return {claim: name for name in spec.member_order() for claim in spec.members[name].owned}

    patch.setattr(sticky, "valid_claims", all_claims)
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


POLICIES = (
    Mutation(
        name="double claims are trusted",
        incident="KAFKA-12984",
        breaks=frozenset({22, 23}),
        plant=_double_claims_are_trusted,
        ground=grounds.churn,
        seeds=10,
    ),
    Mutation(
        name="claims of members that missed a generation are void",
        incident="KAFKA-13891",
        breaks=frozenset({28, 30, 49}),
        plant=_claims_of_members_that_missed_a_generation_are_void,
        ground=grounds.missed_syncs,
        seeds=2,
    ),
    Mutation(
        name="the assignor never hears of generations",
        incident="aio-libs/aiokafka #1176",
        breaks=frozenset({23, 30, 48}),
        plant=_the_assignor_never_hears_of_generations,
        ground=grounds.missed_syncs_of_sticky_members,
        seeds=5,
    ),
)
