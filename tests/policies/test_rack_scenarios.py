"""Racks (KIP-881): the sentences of member_and_policies 5.4; 89 and 90 are in tests/engine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.policies.groups import again, group, member, partitions, shown
from tests.policies.measures import moves, skew, unassigned, violations

from kohort.model.ids import GenerationId, GroupInstanceId, MemberId
from kohort.policies.range_ import RANGE
from kohort.policies.spec import Assignor, GroupSpec, MemberSpec, Shares
from kohort.policies.sticky import COOPERATIVE, STICKY

SIZES = {"t1": 6, "t2": 7, "t3": 2}
EVERYTHING = "t1 t2 t3"


def places(sizes: Mapping[str, int], replicas: int, racks: str) -> dict[str, list[frozenset[str]]]:
    """The racks of each partition: replicas are placed in turns, one topic after the other."""
    found: dict[str, list[frozenset[str]]] = {}
    first = 0
    for topic, size in sizes.items():
        found[topic] = [
            frozenset(racks[(first + n + r) % len(racks)] for r in range(replicas))
            for n in range(size)
        ]
        first += size
    return found


def racked(
    replicas: int,
    racks: str = "abc",
    *,
    sizes: Mapping[str, int] = SIZES,
    topics: Mapping[str, str] | None = None,
    at: str = "abc",
    owned: Mapping[str, str] | None = None,
) -> GroupSpec:
    """A group; ``at`` has the rack of each member, ``-`` for none."""
    members = {}
    for number, rack in enumerate(at):
        name = f"c{number + 1}"
        members[MemberId(name)] = MemberSpec(
            topics=frozenset((topics or {}).get(name, " ".join(sizes)).split()),
            owned=partitions((owned or {}).get(name, "")),
            generation_id=GenerationId(1 if owned else -1),
            rack_id=None if rack == "-" else rack,
        )
    return GroupSpec(members=members, partitions=sizes, racks=places(sizes, replicas, racks))


def mismatches(spec: GroupSpec, plan: Shares) -> int:
    """The partitions of members in racks without a replica."""
    return sum(
        spec.members[m].rack_id not in spec.racks[p.topic][p.partition]
        for m, mine in plan.items()
        for p in mine
    )


def plan_of(assignor: Assignor, spec: GroupSpec) -> Shares:
    plan = assignor.assign(spec).partitions
    assert not violations(spec, plan)
    return plan


def without_racks(spec: GroupSpec) -> GroupSpec:
    return GroupSpec(members=spec.members, partitions=spec.partitions)


@pytest.mark.parametrize("assignor", [RANGE, STICKY, COOPERATIVE])
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(racked(3), id="77: all partitions have replicas in all racks"),
        pytest.param(racked(1, at="def"), id="78: no replica is in a member's rack"),
        pytest.param(racked(1, at="-ef"), id="78: and a member has no rack"),
    ],
)
def test_77_78_racks_that_make_no_difference_change_no_plan(
    assignor: Assignor, spec: GroupSpec
) -> None:
    assert plan_of(assignor, spec) == plan_of(assignor, without_racks(spec))


@pytest.mark.parametrize(
    ("spec", "expected", "foreign"),
    [
        pytest.param(
            racked(1),
            ["t1-0 t1-3 t2-0 t2-3 t2-6", "t1-1 t1-4 t2-1 t2-4 t3-0", "t1-2 t1-5 t2-2 t2-5 t3-1"],
            0,
            id="79",
        ),
        pytest.param(
            racked(2),
            ["t1-0 t1-2 t2-0 t2-2 t2-3 t3-1", "t1-1 t1-3 t2-1 t2-4 t3-0", "t1-4 t1-5 t2-5 t2-6"],
            1,
            id="80",
        ),
        pytest.param(
            racked(3, "ab"),
            ["t1-0 t1-1 t2-0 t2-1 t2-2 t3-0", "t1-2 t1-3 t2-3 t2-4 t3-1", "t1-4 t1-5 t2-5 t2-6"],
            4,
            id="81: the plan without racks",
        ),
    ],
)
def test_79_80_81_range_uses_racks_topic_by_topic(
    spec: GroupSpec, expected: list[str], foreign: int
) -> None:
    plan = plan_of(RANGE, spec)
    assert list(shown(plan).values()) == expected
    assert mismatches(spec, plan) == foreign


@pytest.mark.parametrize(
    ("replicas", "racks", "foreign"), [(1, "abc", 10), (2, "abc", 5), (3, "ab", 3)]
)
def test_82_range_keeps_equal_topics_aligned_before_racks(
    replicas: int, racks: str, foreign: int
) -> None:
    spec = racked(replicas, racks, sizes={"t1": 5, "t2": 5, "t3": 5})
    plan = plan_of(RANGE, spec)
    assert plan == plan_of(RANGE, without_racks(spec))
    assert mismatches(spec, plan) == foreign


def test_83_range_aligns_pairs_of_topics_and_matches_racks() -> None:
    sizes = {"t1": 6, "t2": 6, "t3": 2, "t4": 2}
    topics = {"c1": "t1 t2", "c2": "t1 t2", "c3": "t3 t4", "c4": "t3 t4"}
    spec = racked(1, "ab", sizes=sizes, topics=topics, at="abba")
    assert shown(plan_of(RANGE, spec)) == {
        "c1": "t1-0 t1-2 t1-4 t2-0 t2-2 t2-4",
        "c2": "t1-1 t1-3 t1-5 t2-1 t2-3 t2-5",
        "c3": "t3-1 t4-1",
        "c4": "t3-0 t4-0",
    }


@pytest.mark.parametrize(
    ("replicas", "racks", "foreign"), [(1, "abc", 0), (2, "abc", 0), (3, "ab", 5)]
)
def test_84_sticky_keeps_the_balance_and_matches_racks(
    replicas: int, racks: str, foreign: int
) -> None:
    spec = racked(replicas, racks)
    plan = plan_of(STICKY, spec)
    assert (skew(plan), mismatches(spec, plan)) == (0, foreign)


@pytest.mark.parametrize(
    ("replicas", "racks", "foreign"), [(1, "abc", 4), (2, "abc", 0), (3, "ab", 5)]
)
def test_85_sticky_with_unequal_subscriptions(replicas: int, racks: str, foreign: int) -> None:
    spec = racked(replicas, racks, topics={"c3": "t1 t3"})
    plan = plan_of(STICKY, spec)
    assert (skew(plan), mismatches(spec, plan)) == (0, foreign)


def test_86_cooperative_rounds_leave_the_wrong_racks() -> None:
    wrong = {
        "c1": "t1-1 t1-4 t2-1 t2-4 t3-0",
        "c2": "t1-2 t1-5 t2-2 t2-5 t3-1",
        "c3": "t1-0 t1-3 t2-0 t2-3 t2-6",
    }
    spec = racked(1, owned=wrong)
    assert mismatches(spec, {m: spec.members[m].owned for m in spec.members}) == 15
    first = COOPERATIVE.assign(spec).partitions
    assert not any(first.values()), "every partition must be given up before it moves"
    released = racked(1)
    last = plan_of(COOPERATIVE, released)
    assert (mismatches(released, last), unassigned(released, last)) == (0, set())


def test_87_members_in_the_right_racks_keep_everything() -> None:
    spec = racked(1)
    plan = plan_of(COOPERATIVE, spec)
    same = racked(1, owned=shown(plan))
    assert moves(plan, plan_of(COOPERATIVE, same)) == 0


def test_88_static_members_keep_racks_over_new_member_ids() -> None:
    sizes = {"t1": 5, "t2": 5}
    found = []
    for ids in ("xyz", "zxy"):
        members = {
            MemberId(f"{ids[n]}"): MemberSpec(
                topics=frozenset(sizes),
                group_instance_id=GroupInstanceId(f"instance{n + 1}"),
                rack_id="abc"[n],
            )
            for n in range(3)
        }
        there = {topic: places({topic: size}, 2, "abc")[topic] for topic, size in sizes.items()}
        spec = GroupSpec(members=members, partitions=sizes, racks=there)
        plan = plan_of(RANGE, spec)
        found.append({spec.members[m].group_instance_id: mine for m, mine in plan.items()})
    assert found[0] == found[1]
    assert [" ".join(map(str, found[0][GroupInstanceId(f"instance{n}")])) for n in (1, 2, 3)] == [
        "t1-0 t1-2 t2-0 t2-2",
        "t1-1 t1-3 t2-1 t2-3",
        "t1-4 t2-4",
    ]


def test_73_exactly_two_partitions_change_hands_for_racks() -> None:
    spec = racked(1, "ab", sizes={"t": 4}, at="ab", owned={"c1": "t-0 t-1", "c2": "t-2 t-3"})
    assert shown(plan_of(STICKY, spec)) == {"c1": "t-0 t-2", "c2": "t-1 t-3"}
    first = COOPERATIVE.assign(spec).partitions
    assert shown(first) == {"c1": "t-0", "c2": "t-3"}, "two are withheld"
    members = again(group({"t": 4}, {"c1": member("t"), "c2": member("t")}), first).members
    racks = {m: spec.members[m].rack_id for m in spec.members}
    second = GroupSpec(
        members={
            m: MemberSpec(
                topics=each.topics,
                owned=each.owned,
                generation_id=each.generation_id,
                rack_id=racks[m],
            )
            for m, each in members.items()
        },
        partitions={"t": 4},
        racks=spec.racks,
    )
    assert shown(COOPERATIVE.assign(second).partitions) == {"c1": "t-0 t-2", "c2": "t-1 t-3"}
