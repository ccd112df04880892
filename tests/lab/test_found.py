"""Findings of random worlds: each as one small plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kohort.coordinator.offset_table import OffsetTable
from kohort.history.checker import check_history
from kohort.lab import actions
from kohort.lab.exhaustive import explore, small_plan
from kohort.lab.plan import Behaviour, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.world import World
from kohort.model.client_facts import CallbackKind, CallbackStarted, Outcome, ResponseReceived
from kohort.model.errors import ErrorCode
from kohort.model.facts import JoinPhaseCompleted, MemberExpired, RebalanceStarted
from kohort.model.group_state import GroupState
from kohort.model.wire_facts import (
    AnswerSent,
    CommitTold,
    FetchTold,
    PersistBegun,
    PersistFailed,
    PersistOk,
)
from kohort.model.world_facts import TopicSized


def broken(world: World) -> list[str]:
    """The promises that a history breaks."""
    return sorted({v.name for v in check_history(world.history).violations})


def test_an_assignment_is_not_reported_after_the_membership_was_lost_in_a_long_batch() -> None:
    """The member lost its assignment before the application received it.

    The application sat in one batch for longer than max.poll.interval; the assignment that came in
    that time was told to it afterwards, when the partition had long been somebody else's.
    """
    behaviour = Behaviour(
        session_timeout_ms=6_000, heartbeat_interval_ms=1_000, max_poll_interval_ms=10_000
    )
    world = World(
        Plan(
            seed=1,
            duration_ms=90_000,
            topics=(TopicPlan(name="t", partitions=4),),
            pods=tuple(PodPlan(name=name, behaviour=behaviour) for name in ("a", "b")),
            actions=(
                actions.SlowApplication(at_ms=20_000, pod="a", batch_ms=40_000),
                actions.StopPod(at_ms=25_000, pod="b", back_after_ms=20_000),
            ),
        )
    )
    world.run()
    assert world.converged(("a", "b"))
    assert broken(world) == []


@pytest.mark.slow
def test_a_leader_that_does_not_know_a_topic_leaves_no_partition_unassigned() -> None:
    """Its lookup of partition counts timed out, so it told the whole group to own nothing.

    The line from the broker went dead when the leader had joined and not yet looked its topics up.
    """
    found = explore(
        small_plan(members=2, strategy="range"), "deaf", last_ms=40, window_ms=0, depth=1
    )
    assert found.placements > 10
    assert not found.failed


def test_a_broker_that_dies_during_a_report_of_writes_gets_no_further_reports() -> None:
    """Several commits wait for one slow sync; the broker dies at the report of the first (319).

    The other commits were synced in its next life, which got reports of tickets that it never gave.
    """
    busy = Behaviour(auto_commit_interval_ms=100, idle_ms=50, batch_ms=10)
    plan = Plan(
        seed=1,
        duration_ms=30_000,
        pods=tuple(PodPlan(name=name, behaviour=busy) for name in ("a", "b", "c")),
        actions=(
            actions.SlowDisk(at_ms=8_000, for_ms=20_000, sync_ms=250),
            actions.CrashAtPersist(at_ms=10_000, number=5, moment="told", down_ms=20),
        ),
    )
    world = World(plan)
    world.run()
    world.check()
    assert broken(world) == []


def test_a_topic_that_does_not_grow_is_not_news() -> None:
    """It had five, grew to nine, then was to have at least eight: the leader knew five (40281).

    The last was told as another change, so that the leader was to know the nine before it. Its
    assignment waited for a slow disk meanwhile.
    """
    plan = Plan(
        seed=1,
        duration_ms=30_000,
        topics=(TopicPlan(name="t", partitions=5),),
        pods=(PodPlan(name="a"), PodPlan(name="b", start_ms=10_000)),
        actions=(
            actions.SlowDisk(at_ms=9_000, for_ms=15_000, sync_ms=7_000),
            actions.GrowTopic(at_ms=16_000, topic="t", partitions=9),
            actions.GrowTopic(at_ms=16_500, topic="t", partitions=8),
        ),
    )
    world = World(plan)
    world.run()
    sizes = [r.fact.partitions for r in world.history if isinstance(r.fact, TopicSized)]
    assert sizes == [5, 9]
    assert broken(world) == []


def test_a_process_that_stands_still_is_killed_when_its_time_to_stop_is_over() -> None:
    """Its grace passed in its own time, which stood still: once healed it was killed for good."""
    plan = Plan(
        seed=1,
        duration_ms=60_000,
        pods=(PodPlan(name="a"),),
        actions=(actions.PausePod(at_ms=8_000, pod="a"), actions.StopPod(at_ms=9_000, pod="a")),
        heal_ms=50_000,
        core=("a",),
    )
    world = World(plan)
    world.run()
    assert world.converged(("a",))
    assert broken(world) == []


def test_a_commit_that_its_consumer_gave_up_does_not_come_late_and_take_newer_ones_back() -> None:
    """It was six seconds on its way and overtaken on another connection (seed 30186).

    Its consumer had given it up after three, committed what it did since, and revoked in order. But
    a slow application held up the round, so that the generation was still open for the late one.
    """
    behaviour = Behaviour(
        strategy="range",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=2_000,
        max_poll_interval_ms=10_000,
        request_timeout_ms=3_000,
        auto_commit_interval_ms=1_000,
    )
    starts = {"fast": 0, "slow": 0, "new": 24_500}
    world = World(
        Plan(
            seed=1,
            duration_ms=60_000,
            topics=(TopicPlan(name="t", partitions=4),),
            pods=tuple(
                PodPlan(name=name, start_ms=start, behaviour=behaviour)
                for name, start in starts.items()
            ),
            actions=(
                actions.Weather(at_ms=21_000, for_ms=1_000, delay_micros=6_000_000),
                actions.SlowApplication(at_ms=23_000, pod="slow", batch_ms=7_000),
            ),
        )
    )
    world.run()
    assert broken(world) == []
    late = [
        r.fact
        for r in world.history
        if isinstance(r.fact, AnswerSent)
        and isinstance(r.fact.body, CommitTold)
        and r.fact.body.errors
        and r.fact.body.errors[0][1] is ErrorCode.REQUEST_TIMED_OUT
    ]
    assert late, "no commit came late"


@pytest.mark.parametrize("batch_ms", [8_000, 60_000], ids=["in order", "killed"])
def test_a_process_that_is_still_ending_when_all_is_healed_comes_back(batch_ms: int) -> None:
    """It was asked to end for good and sat in a long batch: healed first, gone after (40212)."""
    plan = Plan(
        seed=1,
        duration_ms=90_000,
        pods=(PodPlan(name="a"),),
        actions=(
            actions.SlowApplication(at_ms=8_000, pod="a", batch_ms=batch_ms),
            actions.StopPod(at_ms=12_000, pod="a"),
        ),
        heal_ms=13_000,
        core=("a",),
    )
    world = World(plan)
    world.run()
    assert world.pods["a"].incarnation == 2
    assert world.converged(("a",))
    assert broken(world) == []


def _a_full_disk_before_another_owner() -> World:
    """The answer to a commit is lost, its repetition meets a full disk, its sender dies."""
    behaviour = Behaviour(
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_000,
        auto_commit_interval_ms=1_000,
        request_timeout_ms=1_500,
    )
    plan = Plan(
        seed=1,
        duration_ms=40_000,
        topics=(TopicPlan(name="t", partitions=1, records_per_second=0.5),),
        pods=(
            PodPlan(name="a", behaviour=behaviour),
            PodPlan(name="b", start_ms=29_000, behaviour=behaviour),
        ),
        actions=(
            actions.CutPod(at_ms=19_200, pod="a", for_ms=2_000, direction="from broker"),
            actions.FullDisk(at_ms=20_600, for_ms=8_000),
            actions.KillPod(at_ms=22_700, pod="a"),
        ),
    )
    world = World(plan)
    world.run()
    return world


def test_a_commit_that_is_durable_may_be_read_though_its_repetition_failed() -> None:
    """The log holds a commit; a later refused write of the same commit removes nothing (60472)."""
    world = _a_full_disk_before_another_owner()
    writes = {r.fact.ticket: r.fact for r in world.history if isinstance(r.fact, PersistBegun)}
    failed = [
        writes[r.fact.ticket].offsets for r in world.history if isinstance(r.fact, PersistFailed)
    ]
    told = [
        r.fact.body.offsets
        for r in world.history
        if isinstance(r.fact, AnswerSent) and isinstance(r.fact.body, FetchTold)
    ]
    assert told[-1] in failed
    assert broken(world) == []


def test_a_commit_that_only_memory_holds_is_found_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same world with a coordinator that lets others read what its log refused."""
    settle = OffsetTable.settle

    def settled(self: OffsetTable, *write: Any, durable: bool) -> None:
        settle(self, *write, durable=True)

    monkeypatch.setattr(OffsetTable, "settle", settled)
    assert broken(_a_full_disk_before_another_owner()) == ["failed-is-never-told"]


@pytest.mark.parametrize("polls_between", [False, True])
def test_a_topic_dropped_and_taken_up_again_in_one_batch_is_never_revoked(
    polls_between: bool,
) -> None:
    """The listener was told that u is revoked and, at once, that it is assigned (30330).

    The application wanted u no more, and wanted it again before a poll told its listener so: either
    in the batch in which it had dropped it, or in the next one, while a slow broker stored what was
    to be committed first.
    """
    behaviour = Behaviour(topics=("t", "u"), flush_ms=100)
    plan = Plan(
        seed=1,
        duration_ms=40_000,
        topics=(TopicPlan(name="t", partitions=2), TopicPlan(name="u", partitions=2)),
        pods=(PodPlan(name="a", behaviour=behaviour),),
        actions=(
            actions.SlowDisk(at_ms=14_000, for_ms=15_000, sync_ms=1_000),
            actions.SlowApplication(at_ms=15_000, pod="a", batch_ms=3_000),
            actions.Resubscribe(at_ms=16_000, pod="a", topics=("t",)),
            actions.SlowApplication(at_ms=16_500, pod="a", batch_ms=3_000),
            actions.Resubscribe(
                at_ms=20_000 if polls_between else 17_000, pod="a", topics=("t", "u")
            ),
        ),
    )
    world = World(plan)
    world.run()
    assert broken(world) == []
    told = [r.fact for r in world.history if isinstance(r.fact, CallbackStarted)]
    assert not [f for f in told if f.kind is CallbackKind.REVOKED and f.partitions]
    assert {f.generation_id for f in told} == {1}, "nor did the group rebalance for it"
    assert world.converged(("a",))


def test_a_group_waits_for_a_long_batch_without_rebalancing() -> None:
    """Its leader looked for new partitions each 5 s, and at each look it rebalanced (40309, 40429).

    It was in a batch of 50 s when it had to give up half of its partitions. The new
    assignment gave them to no member yet, and the leader treated that as a reason.
    """
    behaviour = Behaviour(max_poll_interval_ms=60_000, metadata_max_age_ms=5_000)
    plan = Plan(
        seed=1,
        duration_ms=120_000,
        pods=(
            PodPlan(name="a", behaviour=behaviour),
            PodPlan(name="b", behaviour=behaviour, start_ms=21_000),
        ),
        actions=(actions.SlowApplication(at_ms=20_000, pod="a", batch_ms=50_000),),
    )
    world = World(plan)
    world.run()
    assert world.converged(("a", "b"))
    assert broken(world) == []
    opened = [r.fact for r in world.history if isinstance(r.fact, JoinPhaseCompleted)]
    assert [len(fact.member_ids) for fact in opened] == [1, 2, 2]


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_static_member_that_dies_around_a_hand_over_leaves_nothing_without_an_owner(
    victim: str,
) -> None:
    """It returned to a place without what it had held, and nobody came back for that (760)."""
    behaviour = Behaviour(max_poll_interval_ms=60_000, session_timeout_ms=10_000)
    starts = {"leader": 0, "follower": 500, "newcomer": 21_000}
    pods = tuple(
        PodPlan(name=name, instance_id=name, start_ms=start, behaviour=behaviour)
        for name, start in starts.items()
    )
    for at_ms in range(20_000, 30_000, 500):
        plan = Plan(
            seed=at_ms,
            duration_ms=60_000,
            pods=pods,
            actions=(
                actions.SlowApplication(at_ms=19_500, pod=victim, batch_ms=8_000),
                actions.KillPod(at_ms=at_ms, pod=victim, back_after_ms=300),
            ),
        )
        world = World(plan)
        world.run()
        assert world.converged(tuple(starts)), at_ms
        assert broken(world) == [], at_ms


def test_a_join_phase_may_wait_for_a_slow_disk_to_store_its_number() -> None:
    """The disk was slower than the rebalance timeout; the members rejoined at once (100859).

    The phase ended as soon as the number of the generation was durable.
    """
    behaviour = Behaviour(session_timeout_ms=10_000, max_poll_interval_ms=10_000)
    plan = Plan(
        seed=1,
        duration_ms=60_000,
        pods=(
            PodPlan(name="a", behaviour=behaviour),
            PodPlan(name="b", behaviour=behaviour, start_ms=20_000),
        ),
        actions=(actions.SlowDisk(at_ms=20_000, for_ms=2_000, sync_ms=12_000),),
    )
    world = World(plan)
    world.run()
    begun = next(
        r.at
        for r in world.history
        if isinstance(r.fact, RebalanceStarted) and r.fact.previous_state is GroupState.STABLE
    )
    opened = [
        (r.at, len(r.fact.member_ids))
        for r in world.history
        if isinstance(r.fact, JoinPhaseCompleted)
    ]
    ended, members = next(o for o in opened if o[0] > begun)
    assert members == 2
    assert ended - begun > 11_000_000
    assert ended in {r.at for r in world.history if isinstance(r.fact, PersistOk)}
    assert broken(world) == []
    assert world.converged(("a", "b"))


def _a_slow_network_that_heals(
    *, request_timeout_ms: int, session_timeout_ms: int = 6_000, commit_ms: int | None = None
) -> Plan:
    """One piece in twenty takes up to 5 s, and half of the messages come in pieces."""
    behaviour = Behaviour(
        request_timeout_ms=request_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=1_200,
        max_poll_interval_ms=10_000,
        auto_commit_interval_ms=commit_ms,
        idle_ms=200,
    )
    return Plan(
        seed=1,
        duration_ms=200_000,
        pods=tuple(PodPlan(name=name, behaviour=behaviour) for name in ("a", "b", "c")),
        network=NetworkPlan(
            delay_micros=50_000, jitter_micros=200_000, slow_ppm=50_000, torn_ppm=500_000
        ),
        heal_ms=30_000,
        core=("a", "b", "c"),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_timeout_ms", "commit_ms"),
    [(3_000, 1_000), (10_000, None)],
    ids=["an answer to a commit is late", "beats alone are late"],
)
def test_a_healed_network_costs_nobody_a_place(
    request_timeout_ms: int, commit_ms: int | None
) -> None:
    """It went on to be slower than time-outs, and one session ended just at the end (201853).

    The answer to a commit came too late, so the member connected anew, which took the rest of its
    session. The group had been stable since it was healed, for 93 s.
    """
    plan = _a_slow_network_that_heals(request_timeout_ms=request_timeout_ms, commit_ms=commit_ms)
    world = World(plan)
    world.run()
    # Pieces sent before the network healed may still be slow, and may end a membership.
    late = [r.fact for r in world.history if r.at > 60_000_000]
    assert [f for f in late if isinstance(f, MemberExpired)] == []
    answers = [f for f in late if isinstance(f, ResponseReceived)]
    assert len(answers) > 300
    assert {f.outcome for f in answers} == {Outcome.OK}
    assert world.converged()
    assert broken(world) == []


def test_a_healed_network_stays_as_slow_as_its_pods_can_bear() -> None:
    """Until then it is as slow as was drawn; requests alone may time out for ever."""
    hasty = _a_slow_network_that_heals(request_timeout_ms=3_000)
    world = World(hasty)
    world.run(29_000)
    assert world.network.plan == hasty.network
    told = [r.fact for r in world.history if isinstance(r.fact, ResponseReceived)]
    assert [f for f in told if f.outcome is Outcome.UNKNOWN]
    world.run(31_000)
    assert world.network.plan == replace(hasty.network, slow_factor=4)
    patient = _a_slow_network_that_heals(request_timeout_ms=3_000, session_timeout_ms=45_000)
    assert patient.healed_network == patient.network


def test_a_compaction_on_a_full_disk_leaves_the_log_as_it_was() -> None:
    """The error of the disk ended the whole run of `kohort lab seeds`."""
    behaviour = Behaviour(session_timeout_ms=6_000, auto_commit_interval_ms=100, idle_ms=50)
    compactions = [actions.CompactLog(at_ms=ms) for ms in (51_000, 60_000)]
    world = World(
        Plan(
            seed=1,
            duration_ms=80_000,
            topics=(TopicPlan(name="t", partitions=4),),
            pods=tuple(PodPlan(name=name, behaviour=behaviour) for name in ("a", "b")),
            actions=(actions.FullDisk(at_ms=50_000, for_ms=3_000), *compactions),
        )
    )
    world.run()
    assert world.converged(("a", "b"))
    assert broken(world) == []
