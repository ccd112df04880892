"""Worlds: groups converge, faults have their effects, and a seed repeats its history."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kohort.lab import actions
from kohort.lab.actions import Action
from kohort.lab.plan import Behaviour, DiskPlan, NetworkPlan, Plan, PodPlan, TopicPlan
from kohort.lab.random_plans import draw
from kohort.lab.runs import run_plan
from kohort.lab.world import World
from kohort.model import client_facts, facts, wire_facts
from kohort.model.client_facts import CallbackKind
from kohort.model.errors import ErrorCode
from kohort.model.history_record import Recorded
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI

F = TypeVar("F")

QUICK = Behaviour(session_timeout_ms=6_000, heartbeat_interval_ms=1_000, request_timeout_ms=5_000)


def plan(*planned: Action, pods: int = 3, seconds: int = 60, seed: int = 1, **more: Any) -> Plan:
    return Plan(
        seed=seed,
        duration_ms=seconds * 1_000,
        topics=(TopicPlan(name="t", partitions=12),),
        pods=tuple(
            PodPlan(name=f"p{n}", behaviour=more.get("behaviour", QUICK)) for n in range(pods)
        ),
        network=more.get("network", NetworkPlan()),
        disk=more.get("disk", DiskPlan()),
        actions=planned,
    )


def ran(*planned: Action, **more: Any) -> World:
    world = World(plan(*planned, **more))
    world.run()
    world.check()
    return world


def seen(world: World, kind: type[F]) -> list[F]:
    return [r.fact for r in world.history if isinstance(r.fact, kind)]


def everybody(world: World) -> tuple[str, ...]:
    return tuple(world.pods)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_three_pods_share_a_topic(strategy: str) -> None:
    behaviour = Behaviour(strategy=strategy)
    world = ran(behaviour=behaviour)
    assert world.converged(everybody(world))
    assert [len(world.pods[p].driver.core.ownership.owned) for p in world.pods] == [4, 4, 4]


def test_records_are_delivered_once_and_in_order_as_long_as_nothing_goes_wrong() -> None:
    world = ran()
    reached: dict[TopicPartition, int] = {}
    for delivered in seen(world, client_facts.RecordsDelivered):
        assert delivered.first == reached.get(delivered.partition, 0)
        reached[delivered.partition] = delivered.last + 1
    assert len(reached) == 12
    assert min(reached.values()) > 400


def test_torn_and_merged_bytes_change_nothing() -> None:
    network = NetworkPlan(torn_ppm=500_000, merged_ppm=400_000, jitter_micros=30_000)
    world = ran(network=network)
    assert world.converged(everybody(world))
    assert not seen(world, facts.MemberExpired)


def test_a_killed_pod_expires_and_its_partitions_move() -> None:
    world = ran(actions.KillPod(at_ms=20_000, pod="p0"))
    assert world.converged(("p1", "p2"))
    (expired,) = seen(world, facts.MemberExpired)
    assert expired.member_id.startswith("p0-")


def test_a_stopped_pod_leaves_and_comes_back() -> None:
    world = ran(actions.StopPod(at_ms=20_000, pod="p0", back_after_ms=5_000))
    assert world.converged(everybody(world))
    assert not seen(world, facts.MemberExpired)
    assert [left.member_id[:2] for left in seen(world, facts.MemberLeft)] == ["p0"]
    assert world.pods["p0"].incarnation == 2


@pytest.mark.parametrize("wait_ms", [0, 60_000])
def test_a_drained_pod_leaves_with_empty_hands_and_nothing_waits(wait_ms: int) -> None:
    world = ran(
        actions.StopPod(at_ms=20_000, pod="p0", drain=True),
        behaviour=replace(QUICK, scheduled_rebalance_max_delay_ms=wait_ms),
    )
    assert world.converged(("p1", "p2"))
    (left,) = (r.at for r in world.history if isinstance(r.fact, facts.MemberLeft))
    told = [
        (r.at, r.source, r.fact)
        for r in world.history
        if isinstance(r.fact, client_facts.CallbackEnded)
    ]
    given_up = [at for at, pod, f in told if f.kind is CallbackKind.REVOKED and pod == "p0"]
    taken = [at for at, _, f in told if f.kind is CallbackKind.ASSIGNED and f.partitions]
    assert len(given_up) == 1
    assert given_up[0] <= left
    assert taken[-1] - left < 5_000 * MICROS_PER_MILLI, "no wait of a minute"
    assert not seen(world, facts.MemberExpired)


def test_a_pod_that_only_goes_has_committed_and_has_not_left() -> None:
    world = ran(actions.StopPod(at_ms=20_000, pod="p0", leave=False))
    assert not seen(world, facts.MemberLeft)
    assert len(seen(world, facts.MemberExpired)) == 1
    starts = [r.fact for r in world.history if isinstance(r.fact, client_facts.PositionSet)]
    delivered = [r.fact for r in world.history if isinstance(r.fact, client_facts.RecordsDelivered)]
    reached: dict[TopicPartition, int] = {}
    for each in delivered:
        assert each.first >= reached.get(each.partition, 0), "nothing was delivered twice"
        reached[each.partition] = each.last + 1
    assert len(starts) == 16


def test_a_short_pause_is_absorbed_and_a_long_one_ends_the_membership() -> None:
    short = ran(actions.PausePod(at_ms=20_000, pod="p0", for_ms=2_500))
    assert not seen(short, facts.MemberExpired)
    long = ran(actions.PausePod(at_ms=20_000, pod="p0", for_ms=15_000))
    assert len(seen(long, facts.MemberExpired)) == 1
    assert long.converged(everybody(long))


@pytest.mark.parametrize("direction", actions.DIRECTIONS)
def test_a_cut_pod_is_expired_and_comes_back_when_it_heals(direction: str) -> None:
    cut = actions.CutPod(at_ms=20_000, pod="p0", for_ms=25_000, direction=direction)
    world = ran(cut, seconds=120)
    assert [*seen(world, facts.MemberExpired), *seen(world, facts.MembersNotRejoined)]
    assert world.converged(everybody(world))


def test_half_open_connections_are_noticed_by_their_silence() -> None:
    world = ran(actions.HalfOpenLines(at_ms=20_000, pod="p0"), seconds=90)
    assert world.converged(everybody(world))


def test_resets_cost_nothing() -> None:
    world = ran(*(actions.ResetLines(at_ms=20_000 + n * 777) for n in range(5)))
    assert world.converged(everybody(world))
    assert not seen(world, facts.MemberExpired)


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_broker_that_comes_back_knows_its_group(power_cut: bool, silent: bool) -> None:
    crash = actions.CrashBroker(at_ms=20_000, down_ms=2_000, power_cut=power_cut, silent=silent)
    world = ran(crash)
    assert world.converged(everybody(world))
    (loaded,) = seen(world, facts.GroupLoaded)
    assert loaded.member_count == 3
    assert len(seen(world, facts.JoinPhaseCompleted)) == 1, "nobody had to join again"


@pytest.mark.parametrize(
    "number", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3, 5))]
)
@pytest.mark.parametrize("moment", actions.PERSIST_MOMENTS)
def test_a_broker_may_die_at_any_moment_of_any_persist(moment: str, number: int) -> None:
    world = ran(actions.CrashAtPersist(number=number, moment=moment, down_ms=500), seconds=90)
    assert len(seen(world, wire_facts.CoordinatorBooted)) == 2
    assert world.converged(everybody(world))


def test_a_broker_that_slept_expires_nobody() -> None:
    world = ran(actions.StallBroker(at_ms=20_000, for_ms=9_000))
    assert not seen(world, facts.MemberExpired)
    assert world.converged(everybody(world))
    assert len(seen(world, wire_facts.CoordinatorStalled)) == 1


def test_the_time_of_day_may_jump() -> None:
    day = 86_400_000
    world = ran(
        actions.JumpWallClock(at_ms=20_000, by_ms=day),
        actions.JumpWallClock(at_ms=30_000, by_ms=-2 * day),
    )
    assert world.converged(everybody(world))
    assert not seen(world, facts.MemberExpired)


def test_commits_wait_for_a_slow_disk_and_are_refused_by_a_full_one() -> None:
    slow = ran(actions.SlowDisk(at_ms=20_000, for_ms=20_000, sync_ms=1_500))
    assert slow.converged(everybody(slow))
    full = ran(actions.FullDisk(at_ms=20_000, for_ms=15_000))
    assert seen(full, facts.WriteFailed)
    assert full.converged(everybody(full))


def test_after_a_failed_sync_nothing_is_acknowledged_until_a_restart() -> None:
    world = ran(actions.FailSync(at_ms=20_000, down_ms=10_000), seconds=90)
    told = [
        r.at
        for r in world.history
        if isinstance(r.fact, wire_facts.AnswerSent)
        and r.fact.api == "OffsetCommit"
        and r.fact.error is ErrorCode.NONE
    ]
    assert any(at < 20_000_000 for at in told)
    assert not any(22_100_000 < at < 30_000_000 for at in told)
    assert any(at > 31_000_000 for at in told)
    assert world.converged(everybody(world))


def test_operators_grow_topics_change_subscriptions_and_ask_for_rebalances() -> None:
    world = World(
        Plan(
            seed=1,
            duration_ms=90_000,
            topics=(TopicPlan(name="t", partitions=4), TopicPlan(name="u", partitions=3)),
            pods=tuple(
                PodPlan(name=name, behaviour=Behaviour(metadata_max_age_ms=5_000)) for name in "ab"
            ),
            actions=(
                actions.GrowTopic(at_ms=20_000, topic="t", partitions=6),
                actions.Resubscribe(at_ms=40_000, pod="a", topics=("t", "u")),
                actions.Rejoin(at_ms=60_000, pod="b"),
            ),
        )
    )
    world.run(39_000)
    assert world.converged(("a", "b"))
    assert len(world.pods["a"].driver.core.ownership.owned) == 3
    world.run(59_000)
    assert world.converged(("a", "b"))
    assert sum(tp.topic == "u" for tp in world.pods["a"].driver.core.ownership.owned) == 3
    generation = world.pods["a"].driver.member.core.synced_generation_id
    world.run(75_000)
    assert world.pods["a"].driver.member.core.synced_generation_id > generation


def test_a_slow_application_leaves_and_comes_back() -> None:
    behaviour = Behaviour(max_poll_interval_ms=8_000)
    world = ran(
        actions.SlowApplication(at_ms=20_000, pod="p0", batch_ms=15_000), behaviour=behaviour
    )
    assert len(seen(world, facts.MemberLeft)) == 1
    assert world.converged(everybody(world))


def test_facts_may_be_taken_as_they_come_and_are_kept_nowhere_then() -> None:
    kept = World(plan())
    taken: list[Recorded] = []
    passing = World(plan(), take=taken.append)
    kept.run()
    passing.run()
    assert taken == kept.history
    assert passing.history == []
    assert passing.facts == kept.facts == len(taken)


def test_a_run_without_a_history_is_the_same_run() -> None:
    with_history, without = World(plan()), World(plan(), recording=False)
    with_history.run()
    without.run()
    assert with_history.network.digest == without.network.digest
    assert not without.history


def test_seeds_differ() -> None:
    assert run_plan(plan(seed=1)).digest != run_plan(plan(seed=2)).digest


def digests() -> list[str]:
    drawn = ((3, "safety"), (5, "liveness"), (11, "safety"))
    return [run_plan(draw(seed, mode)).digest for seed, mode in drawn]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_in_a_process_with_another_hash_seed() -> None:
    root = Path(__file__).parents[2]
    other = subprocess.run(
        [sys.executable, "-c", "from tests.lab.test_world import digests; print(*digests())"],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(root)},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    here = digests()
    assert other.stdout.split() == here
    assert len(set(here)) == 3
