"""Range and round robin: the sentences of member_and_policies 5.1, one test each."""

from __future__ import annotations

import pytest
from tests.policies.groups import again, group, member, shown
from tests.policies.measures import moves, unassigned, violations

from kohort.model.ids import MemberId, ProtocolName
from kohort.policies.range_ import RANGE
from kohort.policies.registry import ASSIGNORS
from kohort.policies.round_robin import ROUND_ROBIN
from kohort.policies.spec import Assignor

every_assignor = pytest.mark.parametrize("name", sorted(ASSIGNORS))


@every_assignor
def test_1_a_member_without_topics_gets_an_empty_list(name: ProtocolName) -> None:
    assert shown(ASSIGNORS[name].assign(group({"t": 3}, {"c1": member("")})).partitions) == {
        "c1": ""
    }


@every_assignor
def test_2_a_topic_without_metadata_is_no_error(name: ProtocolName) -> None:
    assert shown(ASSIGNORS[name].assign(group({}, {"c1": member("t")})).partitions) == {"c1": ""}


@every_assignor
def test_3_4_one_member_gets_what_it_subscribed_to_and_no_more(name: ProtocolName) -> None:
    plan = ASSIGNORS[name].assign(group({"t": 3, "other": 3}, {"c1": member("t")})).partitions
    assert shown(plan) == {"c1": "t-0 t-1 t-2"}


@every_assignor
def test_5_one_member_on_two_topics(name: ProtocolName) -> None:
    plan = ASSIGNORS[name].assign(group({"t": 1, "u": 2}, {"c1": member("t u")})).partitions
    assert shown(plan) == {"c1": "t-0 u-0 u-1"}


@every_assignor
def test_6_one_partition_two_members(name: ProtocolName) -> None:
    plan = (
        ASSIGNORS[name].assign(group({"t": 1}, {"c1": member("t"), "c2": member("t")})).partitions
    )
    assert shown(plan) == {"c1": "t-0", "c2": ""}


@every_assignor
def test_7_two_partitions_two_members(name: ProtocolName) -> None:
    plan = (
        ASSIGNORS[name].assign(group({"t": 2}, {"c2": member("t"), "c1": member("t")})).partitions
    )
    assert shown(plan) == {"c1": "t-0", "c2": "t-1"}


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_8_9_different_subscriptions(assignor: Assignor) -> None:
    spec = group(
        {"t1": 3, "t2": 2}, {"c1": member("t1"), "c2": member("t1 t2"), "c3": member("t1")}
    )
    assert shown(assignor.assign(spec).partitions) == {
        "c1": "t1-0",
        "c2": "t1-1 t2-0 t2-1",
        "c3": "t1-2",
    }


def test_10_range_favours_the_first_member_on_every_topic() -> None:
    spec = group({"t1": 3, "t2": 3}, {"c1": member("t1 t2"), "c2": member("t1 t2")})
    assert shown(RANGE.assign(spec).partitions) == {"c1": "t1-0 t1-1 t2-0 t2-1", "c2": "t1-2 t2-2"}


def test_11_round_robin_does_not() -> None:
    spec = group({"t1": 3, "t2": 3}, {"c1": member("t1 t2"), "c2": member("t1 t2")})
    assert shown(ROUND_ROBIN.assign(spec).partitions) == {
        "c1": "t1-0 t1-2 t2-1",
        "c2": "t1-1 t2-0 t2-2",
    }


def test_12_static_members_are_ordered_by_instance_id() -> None:
    members = {"b": member("t1 t2", instance="1"), "a": member("t1 t2", instance="2")}
    assert shown(RANGE.assign(group({"t1": 3, "t2": 3}, members)).partitions) == {
        "b": "t1-0 t1-1 t2-0 t2-1",
        "a": "t1-2 t2-2",
    }


def test_13_static_members_come_before_dynamic_ones() -> None:
    members = {"b": member("t1 t2", instance="1"), "a": member("t1 t2")}
    assert (
        shown(RANGE.assign(group({"t1": 3, "t2": 3}, members)).partitions)["b"]
        == "t1-0 t1-1 t2-0 t2-1"
    )


def test_14_replacing_the_dynamic_member_changes_nothing_for_the_static_ones() -> None:
    statics = {f"s{n}": member("t1 t2", instance=str(n)) for n in (1, 2, 3)}
    sizes = {"t1": 5, "t2": 4}
    first = shown(RANGE.assign(group(sizes, {**statics, "c4": member("t1 t2")})).partitions)
    assert first == {
        "s1": "t1-0 t1-1 t2-0",
        "s2": "t1-2 t2-1",
        "s3": "t1-3 t2-2",
        "c4": "t1-4 t2-3",
    }
    second = shown(RANGE.assign(group(sizes, {**statics, "c5": member("t1 t2")})).partitions)
    assert second.pop("c5") == first.pop("c4")
    assert second == first


@pytest.mark.parametrize("assignor", [RANGE, ROUND_ROBIN])
def test_15_16_new_member_ids_of_the_same_instances_change_nothing(assignor: Assignor) -> None:
    sizes = {"t1": 5, "t2": 5}

    def by_instance(ids: str) -> list[str]:
        members = {name: member("t1 t2", instance=str(n)) for n, name in enumerate(ids.split(), 1)}
        plan = shown(assignor.assign(group(sizes, members)).partitions)
        return [plan[name] for name in ids.split()]

    assert by_instance("x y z") == by_instance("q p a")


def test_17_round_robin_is_poor_with_unequal_subscriptions() -> None:
    everything, odd = "t1 t2 t3 t4 t5", "t1 t3 t5"
    spec = group(
        {"t1": 2, "t2": 1, "t3": 2, "t4": 1, "t5": 2},
        {"c1": member(everything), "c2": member(odd), "c3": member(odd), "c4": member(everything)},
    )
    assert shown(ROUND_ROBIN.assign(spec).partitions) == {
        "c1": "t1-0 t3-0 t5-0",
        "c2": "t1-1 t3-1 t5-1",
        "c3": "",
        "c4": "t2-0 t4-0",
    }


def test_18_more_members_than_partitions() -> None:
    spec = group({"t": 3}, {f"c{n}": member("t") for n in range(5)})
    assert sorted(len(p) for p in RANGE.assign(spec).partitions.values()) == [0, 0, 1, 1, 1]
    more = group({"t": 3}, {f"c{n}": member("t") for n in range(6)})
    assert moves(RANGE.assign(spec).partitions, RANGE.assign(more).partitions) == 0


def test_20_members_gone_and_subscriptions_removed() -> None:
    spec = group({"t": 4, "u": 4}, {f"c{n}": member("t u") for n in range(3)})
    alone = again(spec, RANGE.assign(spec).partitions, without="c1 c2")
    assert len(RANGE.assign(alone).partitions[MemberId("c0")]) == 8
    fewer = group({"t": 4, "u": 4}, {"c0": member("t"), "c1": member("t"), "c2": member("t u")})
    plan = RANGE.assign(fewer).partitions
    assert [p for p in plan[MemberId("c2")] if p.topic == "u"] == [("u", n) for n in range(4)]
    assert not violations(fewer, plan)
    assert not unassigned(fewer, plan)
