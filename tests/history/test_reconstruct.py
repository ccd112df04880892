"""A group's story, put together from its facts."""

from __future__ import annotations

from tests.history.tale import G, Tale, m, tps

from kohort.history.reconstruct import reconstruct
from kohort.model.client_facts import ProcessKilled
from kohort.model.facts import RebalanceCause


def test_generations_have_members_times_and_targets() -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.again(a=(0, 1), b=(2,), c=())
    story = reconstruct(tale.history)[G]
    first, second = story.generations
    assert (first.number, first.member_ids, first.leader_id) == (1, (m("a"), m("b")), m("a"))
    assert first.targets == {m("a"): frozenset(tps(0, 1)), m("b"): frozenset(tps(2, 3))}
    assert first.stable_at is not None
    assert first.opened_at < first.stable_at < second.opened_at
    assert second.targets[m("c")] == frozenset()


def test_rebalances_have_a_cause_and_a_duration() -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3).leave("b")
    tokens = {"a": tale.come_back("a", (0, 1))}
    tale.start(cause=RebalanceCause.MEMBERS_LEFT, members=("b",)).wait(40)
    tale.open(tokens).sync({"a": (0, 1, 2, 3)})
    story = reconstruct(tale.history)[G]
    assert [r.cause for r in story.rebalances] == [
        RebalanceCause.MEMBER_ADDED,
        RebalanceCause.MEMBERS_LEFT,
    ]
    assert [r.generation_id for r in story.rebalances] == [1, 2]
    assert story.rebalances[0].micros == 3_001_000
    assert story.rebalances[1].micros == 41_000
    assert story.rebalances[1].member_ids == (m("b"),)


def test_a_rebalance_that_is_overtaken_leads_nowhere() -> None:
    tale = Tale().stable(a=(0, 1, 2, 3))
    tokens = {"a": tale.come_back("a", (0, 1, 2, 3))}
    tale.start().wait(10).open(tokens).wait(10).start()
    story = reconstruct(tale.history)[G]
    assert [(r.micros, r.generation_id) for r in story.rebalances[1:]] == [
        (20_000, None),
        (None, None),
    ]
    assert story.generations[-1].stable_at is None


def test_ownership_as_assigned_where_no_client_is_recorded() -> None:
    tale = Tale().stable(a=(0, 1), b=(2, 3)).beat_all(3)
    tale.again(a=(0, 1), b=(2,), c=()).again(a=(0, 1), b=(2,), c=(3,))
    story = reconstruct(tale.history)[G]
    third = [i for i in story.ownership if i.partition == tps(3)[0]]
    assert [i.owner for i in third] == [m("b"), m("c")]
    assert third[0].end is not None
    assert third[0].end < third[1].begin
    assert third[1].end is None
    assert len([i for i in story.ownership if i.partition == tps(0)[0]]) == 1


def test_ownership_as_told_where_clients_are_recorded() -> None:
    tale = Tale(booted=False).process("a").told("a", "assigned", 0, 1).wait(5)
    tale.told("a", "revoked", 1).wait(5).add(ProcessKilled(group_id=G), "a")
    story = reconstruct(tale.history)[G]
    assert [(i.partition.partition, i.owner, i.begin, i.end) for i in story.ownership] == [
        (0, "a", 0, 10_000),
        (1, "a", 0, 5_000),
    ]
