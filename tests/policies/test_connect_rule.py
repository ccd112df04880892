"""Connect's rule in plans: the scenarios 103 to 123 of Connect's own assignor."""

from __future__ import annotations

import pytest
from tests.policies.deferred_group import MINUTE, Group

from kohort.model.instants import Millis
from kohort.policies.connect_rule import ConnectRule
from kohort.policies.deferred import DeferredPlan
from kohort.policies.losses import LeaderMemory, Moment
from kohort.policies.spec import GroupSpec


class ConnectGroup(Group):
    """A group in which each member has the memory of Connect's rule."""

    def __init__(self, names: str, wait_s: float = 300, **sizes: int) -> None:
        self.rules: dict[str, ConnectRule] = {}
        self.wait_ms = Millis(int(wait_s * 1_000))
        super().__init__(names, MINUTE, **sizes or {"t": 8})

    def decide(self, spec: GroupSpec, moment: Moment) -> DeferredPlan:
        rule = self.rules.setdefault(moment.leader_id, ConnectRule(self.wait_ms))
        partitions, pending, again = rule.decide(spec, moment)
        memory = LeaderMemory(generation_id=moment.generation_id, owners={}, topics={})
        return DeferredPlan(partitions=partitions, pending=pending, again=again, memory=memory)

    @property
    def sizes_now(self) -> list[int]:
        return [len(each.owned) for each in self.members.values()]

    @property
    def delay_ms(self) -> int:
        assert self.last is not None
        return self.last.again.after_ms if self.last.again else 0


def test_103_a_second_member_gets_half_in_two_rounds() -> None:
    group = ConnectGroup("a")
    assert group.sizes_now == [8]
    group.join("b")
    assert group.round()
    assert (group.sizes_now, group.delay_ms) == ([4, 0], 0)
    assert not group.round()
    assert group.sizes_now == [4, 4]
    assert not group.round()
    assert (group.sizes_now, group.moves) == ([4, 4], 4)


def test_104_revoking_rounds_in_a_row_wait_longer_and_longer() -> None:
    group = ConnectGroup("a", t=12)
    group.join("b")
    assert group.round()
    assert group.sizes_now == [6, 0]
    group.join("c")
    assert not group.round(), "the round before took partitions away"
    assert group.sizes_now == [6, 3, 3]
    assert group.delay_ms == 40
    group.sleep(0.05)
    assert group.sizes_now == [4, 4, 4]
    assert group.delay_ms == 0


def test_105_without_a_delay_revoking_rounds_follow_at_once() -> None:
    group = ConnectGroup("a", wait_s=0, t=12)
    group.join("b")
    assert group.round()
    group.join("c")
    assert group.round()
    assert group.sizes_now == [4, 3, 3]
    group.settle()
    assert (group.sizes_now, group.delay_ms) == ([4, 4, 4], 0)


def test_106_a_delay_is_no_longer_than_its_maximum() -> None:
    group = ConnectGroup("a", wait_s=0.001, t=12)
    group.join("b")
    group.round()
    group.join("c")
    group.round()
    assert group.delay_ms == 1


def test_107_a_member_that_joins_while_a_delay_runs_gets_nothing() -> None:
    group = ConnectGroup("a b c", t=12)
    group.leave("c")
    group.settle()
    group.sleep(10)
    group.join("d", "e")
    group.settle()
    assert group.sizes_now == [4, 4, 0, 0]
    group.sleep(300)
    assert group.sizes_now == [3, 3, 3, 3]
    assert not group.idle


def test_108_a_follower_that_left_for_good_costs_the_whole_delay() -> None:
    group = ConnectGroup("a b c", t=12)
    group.leave("c")
    group.settle()
    assert (group.delay_ms, group.sizes_now, len(group.idle)) == (300_000, [4, 4], 4)
    assert group.last is not None
    assert [wait.partitions for wait in group.last.pending.waits] == [group.idle]
    group.sleep(150)
    group.settle()
    assert (group.delay_ms, len(group.idle)) == (150_000, 4)
    group.sleep(150)
    assert (group.delay_ms, group.sizes_now, group.moves) == (0, [6, 6], 4)


def test_109_and_118_a_follower_that_returns_waits_for_the_end_of_the_delay() -> None:
    """Under Design II it gets its partitions at once (scenario 166)."""
    group = ConnectGroup("a b c", t=12)
    lost = group.owned("c")
    group.leave("c")
    group.settle()
    group.sleep(225)
    group.join("c'")
    group.settle()
    assert (group.delay_ms, group.sizes_now) == (75_000, [4, 4, 0])
    group.sleep(75)
    assert (group.owned("c'"), group.moves) == (lost, 0)


def test_110_when_the_leader_leaves_nothing_waits() -> None:
    """Under Design II the next leader waits (scenario 172)."""
    group = ConnectGroup("a b c", t=12)
    group.leave("a")
    group.settle()
    assert (group.delay_ms, group.sizes_now) == (0, [6, 6])


def test_112_a_plan_that_never_arrived_causes_no_delay() -> None:
    group = ConnectGroup("a b", t=12)
    taken = group.members["b"].owned
    group.members["b"].owned = frozenset()
    group.settle()
    assert (group.delay_ms, group.owned("b")) == (0, taken)


def test_119_two_candidates_share_what_was_lost() -> None:
    group = ConnectGroup("a b c", t=12)
    lost = group.owned("c")
    group.leave("c")
    group.settle()
    group.join("d", "e")
    group.round()
    group.sleep(299)
    assert group.idle == lost
    group.now += 1_000_000
    assert group.round(), "partitions of the others move for balance"
    assert [len(group.owned(name) & lost) for name in "de"] == [2, 2]


def test_a_candidate_that_gets_more_than_its_share_gets_the_rest_taken_away_at_once() -> None:
    group = ConnectGroup("a b c d", t=12)
    group.leave("d")
    group.settle()
    group.join("e")
    group.settle()
    group.leave("c")
    group.settle()
    assert len(group.idle) == 6
    group.now += 300_000_000
    assert not group.round(), "nobody gives anything up, because e never had these partitions"
    assert (group.sizes_now, len(group.idle)) == ([3, 3, 4], 2)
    group.sleep(0)
    assert (group.sizes_now, len(group.idle)) == ([4, 4, 4], 0)


def test_120_a_candidate_that_left_gets_nothing() -> None:
    group = ConnectGroup("a b c", t=12)
    group.leave("c")
    group.settle()
    group.join("d")
    group.settle()
    group.leave("d")
    group.sleep(300)
    assert group.sizes_now == [6, 6]


def test_121_without_a_delay_lost_partitions_move_at_once() -> None:
    group = ConnectGroup("a b c", wait_s=0, t=12)
    group.leave("c")
    group.settle()
    assert (group.delay_ms, group.sizes_now) == (0, [6, 6])
    assert not group.idle


def test_122_partitions_that_two_members_claim_are_taken_from_both() -> None:
    group = ConnectGroup("a b", t=12)
    group.members["b"].owned |= set(sorted(group.owned("a"))[:2])
    assert group.round()
    assert not group.owned("a") & group.owned("b")
    group.settle()
    group.sleep(300)
    assert (sorted(group.sizes_now), group.idle) == ([6, 6], set())


def test_111_a_leader_that_bounces_comes_back_as_a_plain_newcomer() -> None:
    group = ConnectGroup("a b c", t=12)
    group.leave("a")
    group.settle()
    group.join("a'")
    assert group.round(), "a revocation"
    assert not group.round(), "and the assignment"
    assert (group.sizes_now, group.delay_ms) == ([4, 4, 4], 0)


@pytest.mark.parametrize("gap", [0, 3], ids=["113", "114: generations are missing at the leader"])
def test_113_114_a_later_plan_that_never_arrived(gap: int) -> None:
    group = ConnectGroup("a b", t=8)
    group.join("c")
    taken = {name: group.owned(name) for name in "ab"}
    assert group.round()
    for name in "ab":  # Nobody saw the plan: all still have what they had.
        group.members[name].owned = taken[name]
        group.members[name].generation -= 1
    group.generation += gap
    group.settle()
    group.sleep(1)
    assert sorted(group.sizes_now) == [2, 3, 3]
    assert (group.idle, group.delay_ms) == (set(), 0)


def test_115_a_deleted_topic_disappears_without_a_delay() -> None:
    group = ConnectGroup("a b", t=8, u=8)
    group.sizes = {"t": 8}
    group.settle()
    assert (group.sizes_now, group.delay_ms, group.idle) == ([4, 4], 0, set())


def test_116_new_work_goes_to_the_least_loaded_in_turns() -> None:
    group = ConnectGroup("a b c", t=6)
    assert group.sizes_now == [2, 2, 2]
    group.sizes = {"t": 11}
    before = {name: group.owned(name) for name in "abc"}
    group.settle()
    came = [sorted(p.partition for p in group.owned(n) - before[n]) for n in "abc"]
    assert came == [[6, 9], [7, 10], [8]]


def test_117_unequal_members_become_equal_by_new_work() -> None:
    group = ConnectGroup("a b c d", t=9)
    everything = sorted(p for name in "abcd" for p in group.owned(name))
    for name, first, last in (("a", 0, 2), ("b", 2, 5), ("c", 5, 9), ("d", 9, 9)):
        group.members[name].owned = frozenset(everything[first:last])
    group.sizes = {"t": 24}
    group.settle()
    assert group.sizes_now == [6, 6, 6, 6]


def test_123_doubled_work_of_a_topic_deleted_meanwhile_is_not_assigned_again() -> None:
    group = ConnectGroup("a b", t=8, u=4)
    group.members["b"].owned |= {p for p in group.owned("a") if p.topic == "u"}
    group.sizes = {"t": 8}
    group.settle()
    group.sleep(300)
    assert sorted(group.sizes_now) == [4, 4]
    assert {p.topic for name in "ab" for p in group.owned(name)} == {"t"}
