"""The model of KIP-848: every instant below was computed by hand."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace

import pytest

from kohort.history.checker import check_history
from kohort.history.cost_values import Measured
from kohort.history.costs import measure
from kohort.lab.actions import Action, CompactLog, KillPod, SlowApplication, StopPod
from kohort.lab.compared_policies import compared_policy
from kohort.lab.plan import Behaviour, Plan, PodPlan, TopicPlan
from kohort.lab.scenarios.base import COSTS, Setup
from kohort.lab.scenarios.registry import SCENARIOS, scenario
from kohort.lab.scenarios.running import run
from kohort.lab.server_side import ServerSideWorld
from kohort.lab.server_side_group import ServerSideGroup, uniform
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.instants import MICROS_PER_MILLI, Instant

BEHAVIOUR = Behaviour(
    heartbeat_interval_ms=5_000,
    max_poll_interval_ms=60_000,
    flush_each_ms=100,
    restore_cold_ms=1_000,
    restore_warm_ms=100,
)
FOUR = [TopicPartition("t", n) for n in range(4)]
GROWN_MS = 30_000
"""Pod a is alone with four partitions until b comes after 12 s; both have two long before this."""


def plan(*actions: Action, static: bool = False, behaviour: Behaviour = BEHAVIOUR) -> Plan:
    return Plan(
        seed=1,
        duration_ms=200_000,
        topics=(TopicPlan(name="t", partitions=4),),
        pods=tuple(
            PodPlan(
                name=name,
                start_ms=start,
                behaviour=behaviour,
                instance_id=name if static else None,
            )
            for name, start in (("a", 0), ("b", 12_000))
        ),
        actions=actions,
    )


def measured(of: Plan, begin_ms: int = GROWN_MS) -> Measured:
    world = ServerSideWorld(of)
    world.run()
    assert check_history(world.history).violations == ()
    return measure(
        world.history,
        of.partitions,
        COSTS,
        begin=Instant(begin_ms * MICROS_PER_MILLI),
        end=Instant(of.duration_ms * MICROS_PER_MILLI),
    )


def downs(of: Measured) -> list[tuple[int, int, int]]:
    """Partition, and the milliseconds at which its service stopped and began again."""
    return sorted(
        (d.partition.partition, d.begin // MICROS_PER_MILLI, d.end // MICROS_PER_MILLI)
        for d in of.dead_times
    )


def both(*spans: tuple[int, int]) -> list[tuple[int, int, int]]:
    """The same times for the two partitions that b has."""
    return sorted((number, *span) for span in spans for number in (2, 3))


def test_the_uniform_target_is_balanced_before_it_is_sticky() -> None:
    former = {"m": set(FOUR[:3]), "n": set(FOUR[3:])}
    assert uniform(FOUR, ["m", "n"], former) == {"m": set(FOUR[:2]), "n": set(FOUR[2:])}
    assert uniform(FOUR, ["n"], former) == {"n": set(FOUR)}
    assert uniform(FOUR[:3], ["l", "m"], former) == {"l": {FOUR[1], FOUR[2]}, "m": {FOUR[0]}}


def test_a_newcomer_gets_partitions_at_its_second_heartbeat() -> None:
    """a learns that at 15 s, flushes for 200 ms and reports; b asks again at 17 s, and restores."""
    of = measured(plan(), begin_ms=10_000)
    assert downs(of) == both((15_000, 18_002))
    assert of.metrics.generations == 1
    assert of.metrics.rebalances == 0
    assert of.metrics.relocations == 2


def test_partitions_of_a_member_that_left_wait_for_a_heartbeat_of_another() -> None:
    """b flushes until 31.2 s and leaves; a reported at 15.2 s, so it asks at 35.2 s."""
    of = measured(plan(StopPod(at_ms=31_000, pod="b")))
    assert downs(of) == both((31_000, 35_302))
    assert (of.metrics.generations, of.metrics.warm_restores) == (1, 2)


def test_partitions_of_a_dead_member_wait_for_the_end_of_its_session() -> None:
    """The last heartbeat of b was at 27 s; its session ends at 72 s, and a asks at 75.2 s."""
    of = measured(plan(KillPod(at_ms=31_000, pod="b")))
    assert downs(of) == both((31_000, 75_302))


def test_a_restarted_process_is_another_member_until_the_session_of_the_first_ends() -> None:
    """Three members from 41 s on: 2 + 1 + 1, and the dead one keeps what it has until 72 s."""
    of = measured(plan(KillPod(at_ms=31_000, pod="b", back_after_ms=10_000)))
    assert of.metrics.generations == 2
    assert of.metrics.unserved_at_end == 0
    assert min(end for number, _, end in downs(of) if number in (2, 3)) > 72_000


def test_a_static_member_that_bounces_keeps_its_partitions() -> None:
    """b closes until 31.2 s and is back 20 s later; its first answer has its partitions."""
    of = measured(plan(StopPod(at_ms=31_000, pod="b", back_after_ms=20_000), static=True))
    assert downs(of) == both((31_000, 51_302))
    assert (of.metrics.generations, of.metrics.moves) == (0, 0)


def test_a_process_without_its_former_state_restores_everything() -> None:
    forgetful = replace(BEHAVIOUR, state_survives=False)
    bounce = StopPod(at_ms=31_000, pod="b", back_after_ms=20_000)
    assert downs(measured(plan(bounce, static=True, behaviour=forgetful))) == both((31_000, 52_202))


def test_a_restore_of_a_partition_that_was_given_up_does_not_count_later() -> None:
    """a restores from 0 s on, loses two partitions at 15 s, and has them again from 20.2 s on."""
    slow = replace(BEHAVIOUR, restore_cold_ms=60_000)
    of = measured(plan(StopPod(at_ms=19_000, pod="b"), behaviour=slow), begin_ms=0)
    assert downs(of) == [(0, 0, 60_002), (1, 0, 60_002), (2, 0, 80_202), (3, 0, 80_202)]


def test_a_static_member_that_came_back_holds_its_place_again() -> None:
    group = ServerSideGroup("g", FOUR, lambda _fact: None)
    group.beat("m", Instant(0), frozenset())
    assert not group.admits("m")
    group.leave("m", for_now=True)
    assert group.admits("m")
    assert group.beat("m", Instant(1), frozenset()) == set(FOUR)
    assert not group.admits("m")


def test_a_static_member_that_stays_away_loses_its_partitions_with_its_session() -> None:
    of = measured(plan(StopPod(at_ms=31_000, pod="b"), static=True))
    assert downs(of) == both((31_000, 75_302))


def test_a_static_process_is_refused_until_the_session_of_a_killed_one_ends() -> None:
    """b tries from 41 s on, every 5 s; the session ends at 72 s, so that b joins at 76 s."""
    of = measured(plan(KillPod(at_ms=31_000, pod="b", back_after_ms=10_000), static=True))
    assert downs(of) == both((31_000, 75_302), (80_200, 81_102))


def test_an_overdue_member_leaves_and_joins_again_when_it_polls() -> None:
    """It leaves 60 s after its last poll, at 91 s, and polls again at 121 s."""
    of = measured(plan(SlowApplication(at_ms=31_000, pod="b", batch_ms=90_000)))
    assert downs(of) == both((91_000, 95_302), (125_200, 126_102))


def test_a_slow_batch_within_the_limit_changes_nothing() -> None:
    assert downs(measured(plan(SlowApplication(at_ms=31_000, pod="b", batch_ms=50_000)))) == []


def test_a_process_that_flushes_for_too_long_is_killed() -> None:
    hasty = replace(BEHAVIOUR, grace_ms=100)
    of = measured(plan(StopPod(at_ms=31_000, pod="b"), behaviour=hasty))
    assert downs(of) == both((31_000, 75_302))


def test_a_partition_is_given_only_after_its_owner_reported_that_it_gave_it_up() -> None:
    group = ServerSideGroup("g", FOUR, lambda _fact: None)
    now = Instant(0)
    assert group.beat("m", now, frozenset()) == set(FOUR)
    assert group.beat("n", now, frozenset()) == set()
    assert group.beat("m", now) == set(FOUR[:2])
    assert group.beat("m", now) == set(FOUR[:2])
    assert group.beat("m", now, frozenset(FOUR[1:])) == set(FOUR[:2])
    assert group.beat("n", now) == set()
    assert group.beat("m", now, frozenset(FOUR[:2])) == set(FOUR[:2])
    assert group.beat("n", now) == set(FOUR[2:])


def test_a_target_that_changes_during_a_revocation_is_followed_afterwards() -> None:
    group = ServerSideGroup("g", FOUR, lambda _fact: None)
    now = Instant(0)
    group.beat("m", now, frozenset())
    group.beat("n", now, frozenset())
    group.beat("m", now)
    group.leave("n")
    assert group.beat("m", now) == set(FOUR[:2])
    assert group.beat("m", now, frozenset(FOUR[:2])) == set(FOUR)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_ends_with_all_partitions_served_by_one_owner_each(
    name: str, seed: int
) -> None:
    setup = Setup(policy=compared_policy("kip-848"), members=5, partitions=31, seed=seed)
    done = run(scenario(name), setup)
    assert done.measured.metrics.unserved_at_end == 0
    assert check_history(done.history).violations == ()
    assert run(scenario(name), setup) == done


def test_the_check_of_owners_finds_a_coordinator_that_gives_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hasty(self: ServerSideGroup, key: str, now: Instant, owned: Set[object] = frozenset()):  # type: ignore[no-untyped-def]
        if key not in self.members:
            admit(self, key, now, frozenset())
        self.members[key].heard = now
        return self._target[key]

    admit = ServerSideGroup.beat
    monkeypatch.setattr(ServerSideGroup, "beat", hasty)
    world = ServerSideWorld(plan())
    world.run()
    assert {v.name for v in check_history(world.history).violations} == {"no-two-owners"}


def test_an_action_that_the_model_does_not_have_is_refused() -> None:
    world = ServerSideWorld(plan(CompactLog(at_ms=1_000)))
    with pytest.raises(ConfigError, match="CompactLog"):
        world.run()
