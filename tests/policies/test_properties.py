"""Properties of every assignor on random groups, and optimality compared with a flow."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples, seeds
from tests.policies.flow import optimum
from tests.policies.groups import again
from tests.policies.measures import squared_load, unassigned, violations

from kohort.model.ids import GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.policies.registry import ASSIGNORS
from kohort.policies.spec import GroupAssignment, GroupSpec, MemberSpec
from kohort.policies.sticky import COOPERATIVE, STICKY

NAMES = ["t", "u", "v", "w"]


MAX_MEMBERS, MAX_COUNT = 6, 7
CLAIMS = [TopicPartition(topic, n) for topic in NAMES for n in range(-1, MAX_COUNT + 2)]

# Made once: a strategy that is built for every example costs more than the tested plan.
SIZES = st.dictionaries(st.sampled_from(NAMES), st.integers(1, MAX_COUNT), max_size=4)
MEMBERS = st.builds(
    MemberSpec,
    topics=st.frozensets(st.sampled_from(NAMES)),
    owned=st.frozensets(st.sampled_from(CLAIMS), max_size=8),
    generation_id=st.integers(-1, 3).map(GenerationId),
)


def _group(sizes: dict[str, int], members: list[MemberSpec]) -> GroupSpec:
    named = {MemberId(f"c{n}"): member for n, member in enumerate(members)}
    return GroupSpec(members=named, partitions=sizes)


GROUPS = st.builds(_group, SIZES, st.lists(MEMBERS, min_size=1, max_size=MAX_MEMBERS))
"""Any group: unequal subscriptions, missing topics, right, wrong and absurd claims."""


@pytest.mark.parametrize("name", [ProtocolName(name) for name in ("range", "roundrobin", "sticky")])
@given(spec=GROUPS)
def test_every_wanted_partition_goes_to_exactly_one_subscriber(
    name: ProtocolName, spec: GroupSpec
) -> None:
    plan = ASSIGNORS[name].assign(spec).partitions
    assert violations(spec, plan) == []
    assert unassigned(spec, plan) == set()
    assert all(list(mine) == sorted(mine) for mine in plan.values()) or name != "sticky"


@given(spec=GROUPS)
def test_a_cooperative_plan_assigns_no_partition_that_another_member_claims_as_newly(
    spec: GroupSpec,
) -> None:
    plan = COOPERATIVE.assign(spec).partitions
    assert violations(spec, plan) == []
    for member_id, mine in plan.items():
        for partition in mine:
            claims = {
                m: each.generation_id for m, each in spec.members.items() if partition in each.owned
            }
            mine_is_newest = all(
                generation_id < claims.get(member_id, -2)
                for m, generation_id in claims.items()
                if m != member_id
            )
            assert mine_is_newest, claims


@given(spec=GROUPS)
def test_cooperative_rounds_end_in_the_sticky_balance(spec: GroupSpec) -> None:
    wanted = squared_load(STICKY.assign(spec).partitions)
    rounds = 0
    while True:
        rounds += 1
        plan = COOPERATIVE.assign(spec).partitions
        following = again(spec, plan, g=rounds + 10)
        if not unassigned(spec, plan) and all(
            following.members[m].owned == spec.members[m].owned for m in spec.members
        ):
            break
        spec = following
        assert rounds < 5, "never settles"
    assert squared_load(plan) == wanted


@given(spec=GROUPS)
def test_assigning_again_changes_nothing(spec: GroupSpec) -> None:
    plan = STICKY.assign(spec).partitions
    assert STICKY.assign(again(spec, plan)).partitions == plan


@given(spec=GROUPS)
@examples(200)
def test_56_no_plan_is_more_balanced_and_none_as_balanced_moves_less(spec: GroupSpec) -> None:
    kept = rightly_kept(spec)
    held = Counter((m, p.topic) for m, mine in kept.items() for p in mine)
    wanted = {m: spec.members[m].topics for m in spec.members}
    plan = STICKY.assign(spec).partitions
    gained = sum(len(set(mine) - set(kept[m])) for m, mine in plan.items())
    assert (squared_load(plan), 0, gained) == optimum(spec.partitions, wanted, held)


@pytest.mark.parametrize("seed", seeds(24))
def test_37_56_plans_are_optimal_after_many_changes(seed: int) -> None:
    """Members leave, others come, half of the subscriptions change."""
    rng = random.Random(seed)
    many, density = (30, 0.15) if seed % 3 else (10, 0.4)
    sizes = {f"t{n:02}": rng.randrange(1, 10) for n in range(many)}

    def subscription() -> frozenset[str]:
        return frozenset(t for t in sizes if rng.random() < density)

    before = {MemberId(f"m{n:02}"): MemberSpec(topics=subscription()) for n in range(many)}
    plan = STICKY.assign(GroupSpec(members=before, partitions=sizes)).partitions
    after = {
        m: MemberSpec(
            topics=subscription() if rng.random() < 0.5 else old.topics,
            owned=frozenset(plan[m]),
            generation_id=GenerationId(1),
        )
        for m, old in before.items()
        if rng.random() < 0.8
    }
    after |= {MemberId(f"n{n}"): MemberSpec(topics=subscription()) for n in range(3)}
    spec = GroupSpec(members=after, partitions=sizes)
    second = STICKY.assign(spec).partitions
    assert violations(spec, second) == []
    assert unassigned(spec, second) == set()
    kept = rightly_kept(spec)
    held = Counter((m, p.topic) for m, mine in kept.items() for p in mine)
    gained = sum(len(set(mine) - set(kept[m])) for m, mine in second.items())
    wanted = {m: s.topics for m, s in after.items()}
    assert (squared_load(second), 0, gained) == optimum(sizes, wanted, held)


def test_the_oracle_agrees_with_exhaustive_search() -> None:
    """Two topics, three members: every possible distribution of counts, one by one."""
    sizes = {"t": 4, "u": 3}
    topics = {"a": frozenset("tu"), "b": frozenset("t"), "c": frozenset("u")}
    held = {("a", "t"): 1, ("a", "u"): 2, ("b", "t"): 3}
    best = min(
        (
            (ta + ua) ** 2 + (4 - ta) ** 2 + (3 - ua) ** 2,
            0,
            max(0, ta - 1) + max(0, ua - 2) + max(0, 4 - ta - 3) + (3 - ua),
        )
        for ta, ua in itertools.product(range(5), range(4))
    )
    assert optimum(sizes, topics, held) == best


def rightly_kept(spec: GroupSpec) -> GroupAssignment:
    """Written again, independent of `policies.claims`."""
    plan: GroupAssignment = {m: [] for m in spec.members}
    for topic, count in spec.partitions.items():
        for n in range(count):
            partition = TopicPartition(topic, n)
            claims = [
                (m.generation_id, member_id)
                for member_id, m in spec.members.items()
                if partition in m.owned and topic in m.topics
            ]
            newest = max((g for g, _ in claims), default=None)
            right = [member_id for g, member_id in claims if g == newest]
            if len(right) == 1:
                plan[right[0]].append(partition)
    return plan
