"""Timelines of a group: rebalances, ownership as assigned, pauses between commits."""

from __future__ import annotations

from tests.history.tale import G, Tale, m, tps

from kohort.history.rebalances import longest_across, timelines
from kohort.model.facts import OffsetsCommitted, RebalanceCause
from kohort.model.ids import GenerationId
from kohort.model.instants import Instant
from kohort.model.wire_facts import CoordinatorStopped


def test_a_rebalance_has_cause_members_duration_and_generation() -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3).leave("b")
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start(cause=RebalanceCause.MEMBERS_LEFT, members=("b",)).wait(40)
    tale.open(tokens).sync({"a": (0, 1, 2, 3)})
    first, second = timelines(tale.history)[G].rebalances
    assert (first.cause, second.cause) == (RebalanceCause.MEMBER_ADDED, RebalanceCause.MEMBERS_LEFT)
    assert (first.generation_id, second.generation_id) == (1, 2)
    assert (first.micros, second.micros) == (3_001_000, 41_000)
    assert second.member_ids == (m("b"),)
    assert second.opened_at == second.started_at + 40_000


def test_a_rebalance_that_is_interrupted_has_no_generation() -> None:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    tale.start().wait(10).open(tokens).wait(10).start()
    found = timelines(tale.history)[G].rebalances
    assert [(r.micros, r.generation_id) for r in found[1:]] == [(20_000, None), (None, None)]
    tale.wait(5).add(CoordinatorStopped(crashed=True))
    last = timelines(tale.history)[G].rebalances[-1]
    assert (last.micros, last.generation_id) == (5_000, None)


def test_a_partition_moves_when_another_member_gets_it_not_when_it_is_revoked() -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.again(a=(0, 1), b=(2,), c=()).again(a=(0, 1), b=(2,), c=(3,))
    timeline = timelines(tale.history)[G]
    assert [r.moved for r in timeline.rebalances] == [0, 0, 1]
    end = Instant(10**9)
    third = [i for i in timeline.ownership(end) if i.partition == tps(3)[0]]
    assert [i.owner for i in third] == [m("b"), m("c")]
    assert third[0].end < third[1].begin
    assert third[1].end == end
    assert len([i for i in timeline.ownership(end) if i.partition == tps(0)[0]]) == 1


def test_only_commits_of_an_owner_that_kept_its_partition_bound_a_pause() -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)

    def commit(member: str, partition: int, offset: int) -> None:
        offsets = ((tps(partition)[0], offset),)
        tale.add(OffsetsCommitted(G, m(member), GenerationId(1), offsets))

    commit("a", 0, 10)
    commit("b", 3, 10)
    tale.wait(500)
    commit("a", 0, 20)
    commit("a", 2, 20)  # a is not the owner
    tale.wait(10)
    tale.again(a=(0, 1), b=(2,), c=()).again(a=(0, 1), b=(2,), c=(3,)).wait(200)
    commit("a", 0, 30)
    commit("c", 3, 30)
    timeline = timelines(tale.history)[G]
    assert [(p.partition, p.offset) for p in timeline.pauses] == [(tps(0)[0], 10), (tps(0)[0], 20)]
    first, second = timeline.pauses
    assert first.micros == 500_000
    assert longest_across(timeline.pauses, timeline.rebalances) == second
    assert longest_across(timeline.pauses, timeline.rebalances[:1]) is None
