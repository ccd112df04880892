"""The hazards of member_and_policies 1.10 and bad input that no other test of plans has."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.policies.deferred_group import MINUTE, Group
from tests.policies.groups import shown
from tests.policies.test_consumer_groups import offered

from kohort.embedded.consumer import decode_assignment
from kohort.embedded.deferral import NOTHING, Echo, Pending, Wait, encode_echo
from kohort.model.ids import GenerationId, MemberId, ProtocolName, TopicPartition
from kohort.model.instants import Instant, Millis, after
from kohort.policies.consumer_groups import ConsumerAssigner, join_protocols
from kohort.policies.deferred import DeferredPlan, Resolution, deferred_plan
from kohort.policies.losses import Moment
from kohort.policies.registry import assignors
from kohort.policies.spec import GroupSpec, MemberSpec


class Scattered(Group):
    """Each member's clock is some hours away from the clocks of the others."""

    def decide(self, spec: GroupSpec, moment: Moment) -> DeferredPlan:
        hours = 5 * "abcdefgh".index(moment.leader_id[0])
        return super().decide(
            spec, replace(moment, now=after(moment.now, Millis(hours * 3_600_000)))
        )


def test_clocks_that_are_hours_apart_change_no_wait() -> None:
    group = Scattered("a b c d", t=24)
    lost = group.owned("d")
    group.leave("d")
    group.settle()
    for leader in "ab":
        group.sleep(20)
        assert group.idle >= lost
        group.leave(leader)
        group.settle()
    group.sleep(21)
    assert lost.isdisjoint(group.idle), "61 seconds after the loss, under each leader"


def test_a_topic_that_is_deleted_and_made_again_during_a_wait_is_new() -> None:
    group = Group("a b c d", t=8, u=4)
    lost = group.owned("d")
    group.leave("d")
    group.settle()
    assert {p.topic for p in lost} == {"t", "u"}
    group.sizes = {"t": 8}
    group.settle()
    assert group.idle == {p for p in lost if p.topic == "t"}
    group.sizes = {"t": 8, "u": 6}
    group.settle()
    assert group.idle == {p for p in lost if p.topic == "t"}, "u has no lost partition any more"
    group.sleep(61)
    assert not group.idle


def test_a_member_that_left_at_its_poll_interval_and_came_back_gets_its_partitions() -> None:
    """It leaves by LeaveGroup and joins with another id at its next poll: a bounce."""
    group = Group("a b c", t=12)
    before = {name: group.owned(name) for name in "abc"}
    group.leave("b")
    group.settle()
    group.sleep(1)
    group.join("b'")
    group.settle()
    assert group.owned("b'") == before["b"]
    assert (group.owned("a"), group.owned("c")) == (before["a"], before["c"])
    assert group.moves == 0


@pytest.mark.parametrize("generation", [-1, 0])
def test_a_newcomer_may_say_that_its_generation_is_zero(generation: int) -> None:
    """franz-go does; Kafka's first generation is 1."""
    group = Group("a b c", t=12)
    lost = group.owned("c")
    group.leave("c")
    group.settle()
    group.join("d")
    group.members["d"].generation = generation
    group.settle()
    assert group.owned("d") == lost
    assert group.moves == len(lost), "nothing else moved"


@pytest.mark.parametrize("name", ["range", "roundrobin", "sticky"])
def test_179_under_an_eager_name_nothing_waits_and_no_flag_counts(name: str) -> None:
    everything = Resolution(
        most_wait_ms=Millis(60_000), most_moves=1, stateful=frozenset("t"), standbys=1
    )
    wait = Wait(
        wait_id=1,
        start_generation=GenerationId(1),
        remaining_ms=Millis(30_000),
        partitions=frozenset({TopicPartition("t", 0)}),
    )
    echo = Echo(pending=Pending(waits=(wait,)), draining=True, identity=3, prepares=True)
    members = []
    for member in "ab":
        offers = join_protocols(
            assignors(f"cooperative-sticky,{name}"),
            ["t"],
            generation_id=GenerationId(4),
            echo=echo,
        )
        chosen = next(each for each in offers if each.name == name)
        members.append(offered(member, chosen.metadata))
    moment = Moment(generation_id=GenerationId(5), now=Instant(0), leader_id=MemberId("a"))
    made = ConsumerAssigner(everything).assign(ProtocolName(name), members, {"t": 4}, moment)
    assert made.again is None
    told = {i: decode_assignment(data) for i, data in made.assignments.items()}
    assert [each.user_data for each in told.values()] == [None, None]
    assert sorted(len(each.partitions) for each in told.values()) == [2, 2]


@pytest.mark.parametrize(
    ("damage", "note"),
    [
        pytest.param(lambda data: data[:-1], "member b", id="cut"),
        pytest.param(lambda data: data[:6] + b"\x7f" + data[7:], "member b", id="newer format"),
        pytest.param(lambda data: data[:4] + b"zz" + data[6:], "", id="of another Kafka client"),
    ],
)
def test_userdata_that_cannot_be_read_is_named_and_the_group_settles(
    damage: object, note: str
) -> None:
    assert callable(damage)
    group = Group("a b", t=4)
    members = {
        MemberId(name): MemberSpec(
            topics=each.topics,
            owned=each.owned,
            generation_id=GenerationId(each.generation),
            user_data=encode_echo(GenerationId(each.generation), Echo(identity=7)),
        )
        for name, each in group.members.items()
    }
    bad = members[MemberId("b")]
    assert bad.user_data is not None
    members[MemberId("b")] = replace(bad, user_data=damage(bad.user_data))
    spec = GroupSpec(members=members, partitions=group.sizes)
    plan = deferred_plan(spec, Moment(generation_id=GenerationId(9), now=Instant(0)), MINUTE)
    assert [text.partition(":")[0] for text in plan.notes] == ([note] if note else [])
    assert plan.pending == NOTHING
    assert shown(plan.partitions) == {n: " ".join(map(str, sorted(group.owned(n)))) for n in "ab"}
