"""Sticky plans are optimal: thousands of random groups with churn, compared with a flow solver.

Balance comes first, then partitions in the racks of their members, then moves.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from tests.examples import seeds
from tests.policies.flow import optimum
from tests.policies.groups import group, member, shown
from tests.policies.measures import squared_load, unassigned, violations
from tests.policies.test_properties import rightly_kept

from kohort.model.ids import GenerationId, MemberId, TopicPartition
from kohort.model.partition_set import PartitionSet
from kohort.policies import classes
from kohort.policies.numbering import Numbering
from kohort.policies.spec import GroupSpec, MemberSpec, Shares
from kohort.policies.sticky import COOPERATIVE, STICKY

RACKS = ("a", "b", "c")


def histories(seed: int, *, racks: bool = False) -> Iterator[tuple[GroupSpec, Shares]]:
    """Three rounds of a random group: members come, go, and change subscriptions and topics."""
    rng = random.Random(seed)
    sizes = {f"t{n}": rng.randrange(1, 8) for n in range(rng.randrange(1, 9))}
    density = rng.choice((0.2, 0.4, 0.7, 0.95))

    def any_topics() -> frozenset[str]:
        return frozenset(topic for topic in sizes if rng.random() < density)

    common = [any_topics() for _ in range(rng.randrange(1, 6))]

    def topics() -> frozenset[str]:
        return rng.choice(common) if rng.random() < 0.8 else any_topics()

    def newcomers(name: str, count: int) -> dict[MemberId, MemberSpec]:
        return {
            MemberId(f"{name}{n:02}"): MemberSpec(
                topics=topics(), rack_id=rng.choice((*RACKS, None)) if racks else None
            )
            for n in range(count)
        }

    places = {
        topic: [frozenset(rng.sample(RACKS, rng.randrange(4))) for _ in range(size + 2)]
        for topic, size in sizes.items()
    }
    members = newcomers("m", rng.randrange(1, 12))
    for generation in range(3):
        spec = GroupSpec(members=members, partitions=sizes, racks=places if racks else {})
        plan = STICKY.assign(spec).partitions
        yield spec, plan
        members = {
            member_id: MemberSpec(
                topics=topics() if rng.random() < 0.4 else old.topics,
                owned=PartitionSet.of(plan[member_id]),
                generation_id=GenerationId(generation),
                rack_id=old.rack_id,
            )
            for member_id, old in members.items()
            if rng.random() < 0.8
        } | newcomers(f"n{generation}", rng.randrange(4))
        sizes = {t: max(1, size + rng.choice((0, 0, 0, 1, -1))) for t, size in sizes.items()}
        places = {t: [*mine, frozenset(RACKS[:1])] for t, mine in places.items()}


def kind(spec: GroupSpec, partition: TopicPartition) -> str:
    """The topic and the racks of a partition that members are in."""
    mine = {m.rack_id for m in spec.members.values()}
    there = spec.racks[partition.topic][partition.partition] if spec.racks else ()
    return f"{partition.topic} {' '.join(sorted(rack for rack in there if rack in mine))}"


def is_foreign(member: MemberSpec, kind: str) -> bool:
    racks = kind.split()[1:]
    return member.rack_id is not None and bool(racks) and member.rack_id not in racks


def costs(spec: GroupSpec, plan: Shares) -> tuple[int, int, int]:
    kept = rightly_kept(spec)
    return (
        squared_load(plan),
        sum(is_foreign(spec.members[m], kind(spec, p)) for m, mine in plan.items() for p in mine),
        sum(len(set(mine) - set(kept[m])) for m, mine in plan.items()),
    )


def least_costs(spec: GroupSpec) -> tuple[int, int, int]:
    sizes = Counter(
        kind(spec, TopicPartition(topic, n))
        for topic, count in spec.partitions.items()
        for n in range(count)
    )
    wanted = {
        member_id: frozenset(each for each in sizes if each.split()[0] in member.topics)
        for member_id, member in spec.members.items()
    }
    kept = rightly_kept(spec)
    held = Counter((m, kind(spec, p)) for m, mine in kept.items() for p in mine)
    foreign = [(m, k) for m in wanted for k in sizes if is_foreign(spec.members[m], k)]
    return optimum(sizes, wanted, held, foreign)


@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_56_plans_of_random_groups_with_churn_are_optimal(block: int, racks: bool) -> None:
    for seed in seeds(100):
        for spec, plan in histories(100 * block + seed, racks=racks):
            assert violations(spec, plan) == []
            assert unassigned(spec, plan) == set()
            assert costs(spec, plan) == least_costs(spec), 100 * block + seed


@pytest.mark.slow
@pytest.mark.parametrize("racks", [False, True])
@pytest.mark.parametrize(
    ("first", "last"), [(1_000, 1_400), pytest.param(1_400, 3_000, marks=pytest.mark.long)]
)
def test_56_plans_of_thousands_more_groups_are_optimal(first: int, last: int, racks: bool) -> None:
    for seed in range(first, last):
        for spec, plan in histories(seed, racks=racks):
            assert costs(spec, plan) == least_costs(spec), seed


def test_the_histories_reach_the_search_on_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cheap proof of optimality must fail sometimes; otherwise nothing tests the search."""
    searched: list[int] = []
    search = classes.Part._search

    def counted(part: classes.Part) -> None:
        searched.append(1)
        search(part)

    monkeypatch.setattr(classes.Part, "_search", counted)
    for seed in range(100):
        for _ in histories(seed):
            pass
    assert len(searched) > 10


def test_members_get_partitions_with_a_replica_in_their_rack() -> None:
    members = {
        "c1": MemberSpec(topics=frozenset({"t"}), rack_id="b"),
        "c2": MemberSpec(topics=frozenset({"t"}), rack_id="a"),
    }
    spec = GroupSpec(
        members={MemberId(name): each for name, each in members.items()},
        partitions={"t": 4},
        racks={"t": [frozenset({rack}) for rack in "abab"]},
    )
    assert shown(STICKY.assign(spec).partitions) == {"c1": "t-1 t-3", "c2": "t-0 t-2"}


def test_balance_comes_before_racks_and_racks_before_moves() -> None:
    everything = PartitionSet.of(TopicPartition("t", n) for n in range(4))
    held = MemberSpec(
        topics=frozenset({"t"}), owned=everything, generation_id=GenerationId(1), rack_id="a"
    )
    spec = GroupSpec(
        members={
            MemberId("c1"): held,
            MemberId("c2"): MemberSpec(topics=frozenset({"t"}), rack_id="b"),
        },
        partitions={"t": 4},
        racks={"t": [frozenset({rack}) for rack in "baaa"]},
    )
    plan = STICKY.assign(spec).partitions
    assert len(plan[MemberId("c2")]) == 2
    assert TopicPartition("t", 0) in plan[MemberId("c2")]


def test_racks_that_make_no_difference_cause_no_moves() -> None:
    plain = group({"t": 3}, {"c1": member("t", "t0 t2", g=1), "c2": member("t", "t1", g=1)})
    members = {
        MemberId(name): MemberSpec(
            topics=each.topics, owned=each.owned, generation_id=GenerationId(1), rack_id=rack
        )
        for (name, each), rack in zip(plain.members.items(), "ab", strict=True)
    }
    everywhere = {"t": [frozenset("abc")] * 3}
    elsewhere = {"t": [frozenset("xyz")] * 3}
    for racks in (everywhere, elsewhere, {}):
        spec = GroupSpec(members=members, partitions={"t": 3}, racks=racks)
        assert spec.racks_that_count() == {}
        assert STICKY.assign(spec).partitions == {m: each.owned for m, each in members.items()}


def test_racks_of_a_topic_that_grew_since_may_be_unknown() -> None:
    spec = GroupSpec(
        members={
            MemberId(name): MemberSpec(topics=frozenset({"t"}), rack_id=name) for name in "ab"
        },
        partitions={"t": 4},
        racks={"t": [frozenset("b"), frozenset("a")]},
    )
    plan = STICKY.assign(spec).partitions
    assert TopicPartition("t", 0) in plan[MemberId("b")]
    assert TopicPartition("t", 1) in plan[MemberId("a")]
    assert not unassigned(spec, plan)


def test_a_cooperative_plan_in_columns_withholds_what_others_claim() -> None:
    for seed in range(200):
        for spec, plan in histories(seed):
            claimed = Counter(p for each in spec.members.values() for p in set(each.owned))
            mine = COOPERATIVE.assign(spec).partitions
            for member_id, share in plan.items():
                owned = spec.members[member_id].owned
                assert list(mine[member_id]) == [p for p in share if claimed[p] == (p in owned)]


def test_plans_are_equal_whether_claims_are_read_by_columns_or_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_columns = [
        (spec, COOPERATIVE.assign(spec).partitions)
        for seed in range(60)
        for spec, _ in histories(seed, racks=bool(seed % 2))
    ]
    claims = [Numbering(spec).claims(spec.member_order()) for spec, _ in by_columns]
    assert 20 < sum(each.made is not each.rightful for each in claims) < len(claims) - 20
    monkeypatch.setattr(Numbering, "_sound", lambda *args: None)
    for spec, plan in by_columns:
        assert shown(COOPERATIVE.assign(spec).partitions) == shown(plan)
