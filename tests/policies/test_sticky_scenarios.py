"""More sentences of member_and_policies 5.1 to 5.3: large groups, KIP-54's examples, claims."""

from __future__ import annotations

import random

import pytest
from tests.policies.groups import again, group, member, shown
from tests.policies.measures import moves, skew, unassigned, violations
from tests.policies.test_sticky import held_back, plan_of

from kohort.model.ids import GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.policies.registry import ASSIGNORS
from kohort.policies.resource_groups import _asked
from kohort.policies.spec import GroupSpec, MemberSpec, Shares
from kohort.policies.sticky import COOPERATIVE


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_19_partitions_are_added_to_two_topics(name: ProtocolName) -> None:
    """Sticky assignors let members keep theirs. Range counts anew, as Java's does."""
    spec = group({"t": 2, "u": 2}, {"c1": member("t u"), "c2": member("t u")})
    before = ASSIGNORS[name].assign(spec).partitions
    grown = again(spec, before, sizes={"t": 3, "u": 3})
    after = ASSIGNORS[name].assign(grown).partitions
    assert not unassigned(grown, after)
    assert (moves(before, after) == 0) == ("sticky" in name)


@pytest.mark.parametrize(
    ("sizes", "members"),
    [
        ({"t": 3}, {"c1": member("")}),
        ({}, {"c1": member("t")}),
        ({"t": 3, "other": 3}, {"c1": member("t")}),
        ({"t": 1, "u": 2}, {"c1": member("t u")}),
        ({"t": 1}, {"c1": member("t"), "c2": member("t")}),
        ({"t": 2}, {"c1": member("t"), "c2": member("t")}),
    ],
)
def test_21_nothing_changes_hands_in_a_new_group(
    sizes: dict[str, int], members: dict[str, MemberSpec]
) -> None:
    assert held_back(group(sizes, members)) == set()


def test_44_a_quarter_of_two_hundred_members_leaves() -> None:
    rng = random.Random(44)
    sizes = {f"t{n:02}": rng.randrange(1, 11) for n in range(40)}
    topics = sorted(sizes)
    members = {
        f"c{n:03}": member(" ".join(rng.sample(topics, rng.randrange(1, 21)))) for n in range(200)
    }
    spec = group(sizes, members)
    before = plan_of(spec)
    gone = rng.sample(sorted(members), 50)
    after = plan_of(again(spec, before, without=" ".join(gone)))
    stayed = {m: mine for m, mine in before.items() if m not in gone}
    lost = sum(len(before[MemberId(name)]) for name in gone)
    assert moves(stayed, after) <= lost, "no more moves than partitions that lost their owner"


def test_47_two_disjoint_halves_of_five_hundred_members() -> None:
    sizes = {f"t{n:03}": 200 for n in range(100)}
    topics = sorted(sizes)
    first, second = frozenset(topics[:50]), frozenset(topics[50:])
    members = {
        MemberId(f"c{n:03}"): MemberSpec(topics=second if n % 4 else first) for n in range(500)
    }
    plan = plan_of(GroupSpec(members=members, partitions=sizes))
    assert {len(mine) for m, mine in plan.items() if members[m].topics == first} == {80}
    assert {len(mine) for m, mine in plan.items() if members[m].topics == second} == {26, 27}


def test_48_a_balance_that_takes_a_chain_of_two_exchanges() -> None:
    """An assignor of librdkafka looped for ever on such a group (its issue 4783)."""
    spec = group(
        {"a": 1, "b": 1, "c": 1},
        {
            "c1": member("a b", "a0 b0", g=1),
            "c2": member("b c", "c0", g=1),
            "c3": member("c"),
        },
    )
    plan = plan_of(spec)
    assert sorted(len(mine) for mine in plan.values()) == [1, 1, 1]
    assert shown(plan) == {"c1": "a-0", "c2": "b-0", "c3": "c-0"}


def test_49_an_odd_pyramid() -> None:
    sizes = {f"t{n:02}": n + 1 for n in range(20)}
    names = sorted(sizes)
    members = {f"c{n:02}": member(" ".join(names[: n + 1])) for n in range(20)}
    members["odd"] = member(names[0])
    plan = plan_of(group(sizes, members))
    loads = [len(plan[MemberId(f"c{n:02}")]) for n in range(20)]
    assert loads == sorted(loads), "a member with more topics has no fewer partitions"
    assert len(plan[MemberId("odd")]) + loads[0] == 1


def test_53_the_examples_of_kip_54_move_the_documented_minimum() -> None:
    everything = "t0 t1 t2 t3"
    spec = group(
        dict.fromkeys(everything.split(), 2), {f"c{n}": member(everything) for n in range(3)}
    )
    before = plan_of(spec)
    after = plan_of(again(spec, before, without="c1"))
    assert skew(after) == 0
    assert moves({m: p for m, p in before.items() if m != "c1"}, after) == 0

    unequal = group(
        {"t0": 1, "t1": 2, "t2": 3},
        {"c0": member("t0"), "c1": member("t0 t1"), "c2": member("t0 t1 t2")},
    )
    first = plan_of(unequal)
    assert shown(first) == {"c0": "t0-0", "c1": "t1-0 t1-1", "c2": "t2-0 t2-1 t2-2"}
    left = plan_of(again(unequal, first, without="c0"))
    assert shown(left) == {"c1": "t0-0 t1-0 t1-1", "c2": "t2-0 t2-1 t2-2"}

    fewer = plan_of(again(spec, before, topics="t1 t2 t3"))
    assert skew(fewer) == 0
    kept = {m: {p for p in mine if p.topic != "t0"} for m, mine in before.items()}
    assert moves(kept, fewer) == sum(max(0, len(mine) - 2) for mine in kept.values())


def test_72_a_plan_that_takes_and_gives_in_one_round_is_withheld() -> None:
    """Only a ResourceGroup has plans of the application; they are cut as the built-in ones are."""
    spec = group(
        {"r0": 1, "r1": 1}, {"a": member("since -1", "r0-0 r1-0", g=1), "b": member("since -1")}
    )
    plan = _asked(lambda _members, names: {"a": names[:1], "b": names[1:]}, spec)
    assert shown(plan.partitions) == {"a": "r0-0", "b": ""}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_74_a_claim_that_the_leaders_metadata_does_not_know_is_ignored(name: ProtocolName) -> None:
    """As in Java and franz-go; librdkafka lets the owner keep it.

    Nobody else gets the partition, and the leader rebalances when its metadata has caught up.
    """
    spec = group({"t": 2}, {"c1": member("t", "t-0 t-2", g=1), "c2": member("t", "t-1", g=1)})
    plan = ASSIGNORS[name].assign(spec).partitions
    assert shown(plan) == {"c1": "t-0", "c2": "t-1"}


def test_57_an_owner_keeps_its_partitions_beside_older_claims() -> None:
    """The cooperative form: nothing is withheld, although the owner also gets something new."""
    both = "t-0 t-2 t2-1"
    spec = group(
        {"t": 3, "t2": 4}, {"c1": member("t t2", both, g=10), "c2": member("t t2", both, g=9)}
    )
    plan = COOPERATIVE.assign(spec).partitions
    assert set(both.split()) <= set(shown(plan)["c1"].split())
    assert not unassigned(spec, plan)


def test_75_a_stale_claim_counts_when_the_newer_owner_has_left() -> None:
    stale = member("t", "t-0", g=1)
    both = group({"t": 3}, {"a": stale, "b": member("t", "t-0 t-1", g=2), "c": member("t", "t-2")})
    assert "t-0" not in shown(plan_of(both))["a"]
    alone = group({"t": 3}, {"a": stale, "c": member("t", "t-2", g=2), "d": member("t")})
    assert shown(plan_of(alone))["a"] == "t-0"


def test_76_claims_without_a_generation_lose_beside_those_with_one() -> None:
    """kafka-python's cooperative members send subscriptions of version 1."""
    rng = random.Random(76)
    for _ in range(200):
        members = {
            MemberId(f"c{n}"): MemberSpec(
                topics=frozenset({"t"}),
                owned=frozenset(
                    TopicPartition("t", p) for p in rng.sample(range(6), rng.randrange(3))
                ),
                generation_id=GenerationId(3 if n == 0 else -1),
            )
            for n in range(3)
        }
        spec = GroupSpec(members=members, partitions={"t": 6})
        plan: Shares = COOPERATIVE.assign(spec).partitions
        assert not violations(spec, plan)
        ours = members[MemberId("c0")].owned
        kept = set(plan[MemberId("c0")]) & ours
        assert kept == ours, "at most two claims, which are a fair share"
        for name in ("c1", "c2"):
            assert ours.isdisjoint(plan[MemberId(name)]), "nobody gets what our member still has"
