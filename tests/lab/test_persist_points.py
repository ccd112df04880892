"""The broker dies at every moment of a write, and no answer that was sent becomes false.

Faults C1 to C15 of docs/reference/faults.md, as far as they concern groups. The checker finds no
lost commit, assignment or static id (38, 39, 45, 13) and no repeated generation (2).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.lab.test_world import QUICK, seen

from kohort.history.checker import check_history
from kohort.lab import actions
from kohort.lab.actions import Action
from kohort.lab.plan import Behaviour, Plan, PodPlan, TopicPlan
from kohort.lab.world import World
from kohort.model import facts, wire_facts
from kohort.model.errors import ErrorCode

COMMITTING = replace(QUICK, auto_commit_interval_ms=1_000, idle_ms=500)
SILENT = replace(QUICK, auto_commit_interval_ms=None)
NUMBERS = range(1, 9)
"""The writes of the first join, of its assignment, and of the first commits."""


def lived(
    *planned: Action, seconds: int = 30, static: bool = True, behaviour: Behaviour = COMMITTING
) -> World:
    """Two members and a broker that dies; they converge, and the history breaks no promise."""
    pods = tuple(
        PodPlan(name=name, behaviour=behaviour, instance_id=name if static else None)
        for name in ("p0", "p1")
    )
    made = Plan(
        seed=1,
        duration_ms=seconds * 1_000,
        topics=(TopicPlan(name="t", partitions=4),),
        pods=pods,
        coordinator=(("group.initial.rebalance.delay.ms", "500"),),
        actions=planned,
    )
    world = World(made)
    world.run()
    world.check()
    broken = [violation.message for violation in check_history(world.history).violations]
    assert not broken, broken
    assert world.converged(("p0", "p1"))
    return world


def lives(world: World) -> int:
    return len(seen(world, wire_facts.CoordinatorBooted))


def commits(world: World) -> int:
    """OffsetCommits that were acknowledged."""
    return sum(
        fact.api == "OffsetCommit" and fact.error is ErrorCode.NONE
        for fact in seen(world, wire_facts.AnswerSent)
    )


@pytest.mark.slow
@pytest.mark.parametrize("power_cut", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("moment", actions.PERSIST_MOMENTS)
def test_c1_c3_to_c8_c10_at_every_persist_of_a_young_group(moment: str, power_cut: bool) -> None:
    for number in NUMBERS:
        crash = actions.CrashAtPersist(
            number=number, moment=moment, down_ms=300, power_cut=power_cut
        )
        world = lived(crash, static=number % 2 == 0)
        assert lives(world) == 2, f"persist {number} never came"
        assert commits(world)


@pytest.mark.parametrize("moment", actions.PERSIST_MOMENTS)
def test_c9_the_persist_of_a_static_replacement(moment: str) -> None:
    """Without commits the next write after the return is the new id."""
    world = lived(
        actions.KillPod(at_ms=10_000, pod="p0", back_after_ms=1_000),
        actions.CrashAtPersist(at_ms=10_000, number=1, moment=moment, down_ms=300),
        behaviour=SILENT,
    )
    assert lives(world) == 2
    assert seen(world, facts.StaticMemberReplaced)


@pytest.mark.parametrize("at_ms", [15_500, 15_999, 16_100, 17_000])
def test_c11_around_the_end_of_a_session(at_ms: int) -> None:
    world = lived(
        actions.KillPod(at_ms=10_000, pod="p0", back_after_ms=15_000),
        actions.CrashBroker(at_ms=at_ms, down_ms=400, power_cut=True),
        seconds=60,
        static=False,
    )
    assert lives(world) == 2
    assert seen(world, facts.MemberExpired)


def test_c14_one_crash_after_another_and_in_the_middle_of_coming_back() -> None:
    crashes = [
        actions.CrashBroker(at_ms=8_000 + 211 * n, down_ms=5, power_cut=n % 2 == 0)
        for n in range(12)
    ]
    world = lived(*crashes)
    assert lives(world) == 1 + len(crashes)
    assert {fact.member_count for fact in seen(world, facts.GroupLoaded)} == {2}


def test_the_group_of_these_tests_persists_more_than_that() -> None:
    """Otherwise a crash at a late write would test nothing."""
    world = lived()
    assert world.node.journal.persists > max(NUMBERS)
