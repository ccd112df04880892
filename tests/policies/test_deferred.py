"""Design II in plans: scenarios 166 to 178 and 182 to 184, the hazards, random lives."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.policies.deferred_group import MINUTE, Consumer, Group
from tests.policies.groups import shown

from kohort.embedded.deferral import NOTHING, Echo, Pending, Wait, encode_echo, encode_pending
from kohort.model.errors import ConfigError
from kohort.model.ids import GenerationId, GroupInstanceId, MemberId, TopicPartition
from kohort.model.instants import Instant, Millis, millis_between
from kohort.policies.deferred import DeferredPlan, Resolution, deferred_plan
from kohort.policies.losses import Moment
from kohort.policies.spec import GroupSpec, MemberSpec
from kohort.policies.sticky import COOPERATIVE


def remaining(plan: DeferredPlan) -> list[int]:
    return [wait.remaining_ms for wait in plan.pending.waits]


def test_166_a_member_that_returns_in_time_gets_exactly_its_partitions() -> None:
    group = Group("a b c d")
    before = {name: group.owned(name) for name in "abcd"}
    group.leave("d")
    plan = group.settle()
    assert remaining(plan) == [60_000]
    assert group.idle == before["d"]
    assert plan.again is not None
    assert plan.again.after_ms == 60_000
    group.sleep(20)
    group.join("d'")
    plan = group.settle()
    assert {name: group.owned(name) for name in "abc"} == {name: before[name] for name in "abc"}
    assert group.owned("d'") == before["d"]
    assert plan.pending == NOTHING, "184: no userdata in a group without pending work"
    assert (group.generations, group.moves) == (2, 0)


def test_167_without_a_return_the_partitions_are_spread_when_the_wait_is_over() -> None:
    group = Group("a b c d")
    group.leave("d")
    again = group.settle().again
    assert again is not None
    assert again.reason == "the wait for 3 partitions of member d is over"
    group.sleep(59.9)
    assert group.generations == 1
    group.sleep(0.2)
    assert group.generations == 2, "one round, and nobody gives anything up"
    assert not group.idle
    assert group.last is not None
    assert group.last.pending == NOTHING
    assert group.moves == 3


def test_168_another_member_gets_the_lost_partitions_at_once() -> None:
    group = Group("a b c d")
    lost = group.owned("d")
    group.leave("d")
    group.settle()
    group.sleep(5)
    group.join("e")
    assert group.settle().pending == NOTHING
    assert group.owned("e") == lost
    assert group.generations == 2


def test_169_two_members_share_the_lost_partitions_and_the_rest_moves_in_two_steps() -> None:
    group = Group("a b c d", t=60)
    group.leave("d")
    group.settle()
    group.join("e", "f")
    plan = group.settle()
    assert plan.pending == NOTHING
    assert not group.idle
    assert [len(group.owned(name)) for name in "abcef"] == [12] * 5
    assert group.generations == 3


def test_170_a_second_loss_has_a_deadline_of_its_own() -> None:
    group = Group("a b c d")
    second = group.owned("c")
    group.leave("d")
    group.settle()
    group.sleep(20)
    group.leave("c")
    assert remaining(group.settle()) == [40_000, 60_000]
    group.sleep(40)
    assert group.idle == second, "the first wait is over"
    group.sleep(20)
    assert not group.idle


def test_171_new_and_grown_topics_are_assigned_at_once_during_a_wait() -> None:
    group = Group("a b c", t=6)
    lost = group.owned("c")
    group.leave("c")
    group.settle()
    group.sizes = {"t": 8, "new": 3}
    for each in group.members.values():
        each.topics = frozenset(group.sizes)
    group.settle()
    assert group.idle == lost
    assert group.last is not None
    assert remaining(group.last) == [60_000]


def test_172_a_member_that_becomes_leader_goes_on_with_the_wait() -> None:
    group = Group("a b c d")
    lost = group.owned("d")
    group.leave("d")
    group.settle()
    group.sleep(25)
    gone = group.owned("a")
    group.leave("a")
    plan = group.settle()
    assert remaining(plan) == [35_000, 60_000], "the old wait, and one for the leader itself"
    group.sleep(35)
    assert group.idle == gone
    assert lost <= {p for name in "bc" for p in group.owned(name)}


def test_173_a_leader_that_has_just_joined_reads_the_echoes_of_the_others() -> None:
    group = Group("a b c d")
    group.leave("d")
    group.settle()
    group.sleep(25)
    lost = group.idle
    group.members = {
        "e": Consumer(frozenset({"t"}), frozenset({TopicPartition("t", 99)})),
        **group.members,
    }
    plan = group.settle()
    assert remaining(plan) == [35_000]
    assert group.idle < lost, "the new member gets its share from all, the lost member included"


def test_173_without_members_of_an_earlier_generation_nothing_waits() -> None:
    group = Group("a b")
    group.members = {}
    group.join("c", "d")
    group.members["c"].known = {"t": 12}
    assert group.settle().pending == NOTHING
    assert not group.idle


def test_174_a_change_of_leader_every_ten_seconds_does_not_extend_a_wait() -> None:
    group = Group("a b c d e f g h", t=24)
    first_loss = group.owned("h")
    group.leave("h")
    group.settle()
    for leader in "abcdef":
        group.sleep(10)
        if group.leader == leader:
            group.leave(leader)
            group.join(f"{leader}'")
        group.settle()
    group.sleep(1)
    assert first_loss.isdisjoint(group.idle)


def test_178_without_a_wait_the_plan_is_that_of_design_one() -> None:
    group = Group("a b c", Resolution())
    group.leave("c")
    group.join("d", "e")
    spec = GroupSpec(
        members={
            MemberId(name): MemberSpec(
                topics=each.topics, owned=each.owned, generation_id=GenerationId(each.generation)
            )
            for name, each in group.members.items()
        },
        partitions=group.sizes,
    )
    moment = Moment(generation_id=GenerationId(9), now=Instant(0))
    plan = deferred_plan(spec, moment, Resolution())
    assert shown(plan.partitions) == shown(COOPERATIVE.assign(spec).partitions)
    assert plan.pending == NOTHING
    assert plan.again is None


def test_182_two_moves_a_round_pipelined() -> None:
    group = Group("a b", Resolution(most_moves=2), t=20)
    group.join("c")
    group.settle()
    assert [len(group.owned(name)) for name in "abc"] == [7, 7, 6]
    assert group.generations == 4, "three rounds of two moves, and the round that ends the last"
    assert group.moves == 6


def test_183_an_interval_between_the_rounds_and_a_loss_in_between() -> None:
    thirty = Resolution(most_moves=2, moves_interval_ms=Millis(30_000))
    group = Group("a b", thirty, t=20)
    group.join("c")
    group.settle()
    assert len(group.owned("c")) == 2
    group.sleep(29)
    assert len(group.owned("c")) == 2
    group.sleep(2)
    assert len(group.owned("c")) == 4
    group.leave("b")
    group.settle()
    assert not group.idle, "a loss is handled at once"
    group.sleep(300)
    assert [len(group.owned(name)) for name in "ac"] == [10, 10]
    assert group.last is not None
    assert group.last.again is None


def test_a_share_of_all_partitions_limits_the_moves_of_a_round() -> None:
    group = Group("a b", Resolution(most_moves=0.1), t=20)
    group.join("c")
    group.round()
    assert len(group.idle) == 2


@pytest.mark.parametrize("most", [0, -1, 0.0])
def test_a_limit_of_no_moves_is_refused(most: float) -> None:
    with pytest.raises(ConfigError, match="at least one move a round"):
        Resolution(most_moves=most)


def test_a_released_partition_of_a_crashed_owner_is_free() -> None:
    group = Group("a b", t=12)
    group.join("c")
    group.round()
    assert len(group.idle) == 4
    crashed = group.owned("b")
    group.leave("b")
    group.settle()
    assert group.idle == crashed, "the partitions that b had given up do not wait"


def test_a_new_leader_knows_released_partitions_from_the_echoes() -> None:
    group = Group("a b c", t=12)
    group.sizes = {"t": 14}
    group.join("d")
    group.round()
    assert len(group.owned("d")) == 2
    assert len(group.idle) == 1, "another member must give this partition up for d"
    crashed = group.owned("a")
    group.leave("a")
    group.settle()
    assert group.idle == crashed


def test_a_new_leader_takes_partitions_beyond_its_known_count_for_new_ones() -> None:
    group = Group("a b c", t=12)
    for each in group.members.values():
        each.known = {"t": 12}
    lost = group.owned("a")
    group.leave("a")
    group.sizes = {"t": 15}
    group.settle()
    assert group.idle == lost


def test_a_topic_of_which_all_partitions_wait_or_are_lost_is_no_new_topic() -> None:
    """The leader did not make the last plan, and nobody claims a partition of the topic."""
    group = Group("a b c", t=9, u=2)
    holders = {p.partition: name for p, name in group.owner.items() if p.topic == "u"}
    first, second = (holders[number] for number in (0, 1))
    assert first != second
    (leader,) = {"a", "b", "c"} - {first, second}
    for name in (first, second):
        lost = group.owned(name)
        group.leave(name)
        group.members[leader].memory = None
        group.members[leader].known = {}
        waits = group.settle().pending.waits
        assert frozenset().union(*(wait.partitions for wait in waits)) >= lost


def test_the_shares_of_two_lost_members_return_to_two_members() -> None:
    group = Group("a b c d", t=24)
    group.leave("a", "b")  # Both leaders are gone: c sees only that partitions are missing.
    group.settle()
    assert len(group.idle) == 12
    group.join("e", "f")
    group.settle()
    assert [len(group.owned(name)) for name in "cdef"] == [6, 6, 6, 6]
    assert group.generations == 2


def test_a_partition_that_a_present_member_dropped_does_not_wait() -> None:
    group = Group("a b")
    group.members["b"].owned = frozenset()
    assert group.settle().pending == NOTHING
    assert not group.idle


def test_beside_a_member_that_claims_nothing_a_new_leader_calls_nothing_lost() -> None:
    group = Group("a b c d")
    group.members["c"].owned = frozenset()  # It also offers range, so it gave everything up.
    group.leave("a")
    assert group.settle().pending == NOTHING
    assert not group.idle


def test_a_new_leader_counts_from_its_own_assignment_and_not_from_older_echoes() -> None:
    group = Group("a b c")
    wait = Wait(
        wait_id=7,
        start_generation=GenerationId(1),
        remaining_ms=Millis(9_000),
        partitions=group.owned("c"),
    )
    echo = encode_echo(GenerationId(1), Echo(pending=Pending(waits=(wait,))))
    member = MemberSpec(
        topics=frozenset({"t"}),
        owned=group.owned("b"),
        generation_id=GenerationId(1),
        user_data=echo,
    )
    own = Pending(waits=(replace(wait, remaining_ms=Millis(4_000)),))
    moment = Moment(generation_id=GenerationId(2), now=Instant(0), pending=own)
    spec = GroupSpec(members={MemberId("b"): member}, partitions=group.sizes)
    plan = deferred_plan(spec, moment, MINUTE)
    assert [w.remaining_ms for w in plan.pending.waits if w.wait_id == 7] == [4_000]


def returned_leader(*followers: tuple[int, int]) -> list[int]:
    """The time left of a wait, decided by a restarted static leader; its old assignment says 60 s.

    Each follower's echo is given by its generation and the milliseconds that it knows to be left.
    """
    parts = [TopicPartition("t", number) for number in range(12)]

    def echo(remaining_ms: int) -> Pending:
        return Pending(
            waits=(
                Wait(
                    wait_id=7,
                    start_generation=GenerationId(3),
                    remaining_ms=Millis(remaining_ms),
                    partitions=frozenset(parts[8:]),
                ),
            )
        )

    share = 8 // (1 + len(followers))
    members = {
        MemberId(f"m{number}"): MemberSpec(
            topics=frozenset({"t"}),
            owned=frozenset(parts[share * number : share * (number + 1)]),
            generation_id=GenerationId(generation),
            user_data=encode_echo(GenerationId(generation), Echo(pending=pending)),
        )
        for number, (generation, pending) in enumerate(
            [(4, echo(60_000).after(None)), *((g, echo(ms)) for g, ms in followers)]
        )
    }
    plan = deferred_plan(
        GroupSpec(members=members, partitions={"t": 12}),
        Moment(generation_id=GenerationId(5), now=Instant(0), pending=echo(60_000).after(None)),
        MINUTE,
    )
    if not plan.pending.waits:
        assert set(parts) == {p for mine in plan.partitions.values() for p in mine}
    return remaining(plan)


def test_a_restarted_static_leader_goes_on_with_the_time_that_a_follower_knows() -> None:
    assert returned_leader((4, 23_000)) == [23_000]


def test_a_wait_of_unknown_age_that_no_follower_knows_is_over() -> None:
    assert returned_leader() == []


def test_damaged_echoes_are_named_and_ignored() -> None:
    group = Group("a b c")
    group.leave("c")
    group.settle()
    spec = GroupSpec(
        members={
            MemberId(name): MemberSpec(
                topics=each.topics,
                owned=each.owned,
                generation_id=GenerationId(each.generation),
                user_data=encode_echo(GenerationId(each.generation), Echo(pending=each.pending))[
                    :-1
                ],
            )
            for name, each in group.members.items()
        },
        partitions=group.sizes,
    )
    plan = deferred_plan(spec, Moment(generation_id=GenerationId(99), now=Instant(0)), MINUTE)
    assert [text.partition(":")[0] for text in plan.faults] == ["member a", "member b"]
    assert len(plan.pending.waits) == 1, "the partitions are missed all the same"


def test_an_echo_beyond_the_maximum_is_cut() -> None:
    group = Group("a b c")
    lost = group.owned("c")
    group.leave("c", "a")
    far = Wait(
        wait_id=7,
        start_generation=GenerationId(1),
        remaining_ms=Millis(2**31 - 1),
        partitions=lost,
    )
    group.members["b"].pending = Pending(waits=(far,))
    assert max(remaining(group.settle())) <= 60_000


def test_a_rolling_bounce_moves_nothing_although_each_leader_restarts() -> None:
    group = Group("a b c d e", t=23)
    for name in "abcde":
        group.leave(name)
        group.settle()
        group.sleep(20)
        group.join(f"{name}'")
        group.settle()
        group.sleep(20)
    assert group.moves == 0
    assert not group.idle
    assert group.generations == 10


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["leave", "join", "lead", "sleep", "grow", "silent"]), st.integers(0, 99)
    ),
    min_size=1,
    max_size=25,
)


@given(steps=STEPS, seed=st.integers(0, 999))
@examples(60)
def test_no_partition_idles_longer_than_the_wait(steps: list[tuple[str, int]], seed: int) -> None:
    chance = random.Random(seed)
    group = Group("a b c", t=8, u=5)
    names = (f"m{n}" for n in itertools.count())
    missing_since: dict[TopicPartition, int] = {}
    for what, number in steps:
        names_now = list(group.members)
        match what:
            case "leave" if len(names_now) > 1:
                group.leave(names_now[number % len(names_now)])
            case "lead" if len(names_now) > 1:
                group.leave(group.leader)
            case "join":
                topics = chance.choice(["t u", "t", "u"])
                group.join(next(names), topics=topics)
            case "grow":
                group.sizes = {**group.sizes, "t": group.sizes["t"] + 1}
            case "silent":
                group.members[group.leader].echoes = False
            case _:
                group.sleep(number)
        plan = group.settle()
        # A loss that only silent members knew of may begin again.
        wanted = {t for each in group.members.values() for t in each.topics}
        idle = {p for p in group.idle if p.topic in wanted}
        waiting = {p for wait in plan.pending.waits for p in wait.partitions}
        assert idle == waiting
        missing_since = {p: missing_since.get(p, group.now) for p in idle}
        if all(each.echoes for each in group.members.values()):
            for partition, since in missing_since.items():
                assert millis_between(Instant(since), Instant(group.now)) <= 60_000, partition
    group.sleep(61)
    wanted = {t for each in group.members.values() for t in each.topics}
    assert not {p for p in group.idle if p.topic in wanted}
    told = {encode_pending(group.settle().pending_of(MemberId(name))) for name in group.members}
    assert told == {None}, "184: a group with nothing pending can be converted to KIP-848"


def test_a_static_member_that_gave_its_partitions_up_under_a_new_id_is_not_lost() -> None:
    """It returned without a rebalance, and offers an eager protocol, too (swarm safety, 5055)."""
    a, old, new = MemberId("a"), MemberId("s-1"), MemberId("s-2")
    everything = frozenset(TopicPartition("t", n) for n in range(4))
    first = MemberSpec(topics=frozenset({"t"}))
    static = replace(first, group_instance_id=GroupInstanceId("s"))
    plan = deferred_plan(
        GroupSpec(members={a: first, old: static}, partitions={"t": 4}),
        Moment(generation_id=GenerationId(1), now=Instant(0)),
        MINUTE,
    )
    stayed = replace(first, generation_id=GenerationId(1), owned=set(plan.partitions[a]))
    moment = Moment(generation_id=GenerationId(2), now=Instant(0), memory=plan.memory)
    gave_up = replace(static, generation_id=GenerationId(1))
    for returned, waits in ((gave_up, 0), (replace(gave_up, group_instance_id=None), 1)):
        spec = GroupSpec(members={a: stayed, new: returned}, partitions={"t": 4})
        again = deferred_plan(spec, moment, MINUTE)
        assert len(again.pending.waits) == waits
        assert (set().union(*again.partitions.values()) == everything) == (waits == 0)
