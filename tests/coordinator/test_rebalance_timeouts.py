"""How long a group waits for its members: the longest rebalance timeout (reliability A17)."""

from __future__ import annotations

import pytest
from tests.coordinator.world import World

from kohort.model.ids import GroupId

DAYS_24 = 2**31 - 1
HOUR = 3_600_000


def waits_ms(world: World, *, at_most: int) -> int:
    """A phase is open and b is missing: how long until the group goes on without it, in ms."""
    for waited in range(1_000, at_most + 1_000, 1_000):
        lines = world.wait(1_000)
        world.beat("b", 1)
        if any("MembersNotRejoined" in line for line in lines):
            return waited
    raise AssertionError(f"the group waited for more than {at_most} ms")


def stable(a: int, b: int, **settings: int) -> World:
    """A Stable group of a and b that grant this long; then a rejoins, and b only beats."""
    world = World(**settings)
    world.enter("a", rebalance=a)
    world.enter("b", rebalance=b)
    while "b.join#2" not in world.answers:
        world.wait(1_000)
    world.sync("a", 1, {})
    world.sync("b", 1)
    world.written()
    world.join("a", rebalance=a)
    assert world.state() == "PreparingRebalance"
    return world


@pytest.mark.parametrize(("a", "b"), [(20_000, 60_000), (60_000, 20_000)])
def test_a_join_phase_lasts_as_long_as_the_most_patient_member_grants(a: int, b: int) -> None:
    assert waits_ms(stable(a, b), at_most=60_000) == 60_000


def test_a_member_without_rebalance_timeout_has_its_session_timeout() -> None:
    """JoinGroup v0 has no rebalance timeout."""
    assert waits_ms(stable(0, -1), at_most=10_000) == 10_000


def test_nobody_can_hold_a_group_for_24_days() -> None:
    world = stable(20_000, DAYS_24, max_rebalance_timeout_ms=90_000)
    assert waits_ms(world, at_most=90_000) == 90_000


def test_by_default_a_group_waits_for_an_hour_at_most() -> None:
    world = stable(DAYS_24, DAYS_24)
    registry = world.coordinator._registry
    deadline = registry.deadlines.at(registry.groups[GroupId("g")].join_timer)
    assert deadline is not None
    assert deadline - world.now == HOUR * 1_000


def test_a_sync_phase_is_bounded_too() -> None:
    world = World(max_rebalance_timeout_ms=30_000)
    world.joined("a", "b", rebalance=DAYS_24, session=60_000)
    world.sync("a", 1, {})
    assert world.wait(29_999) == []
    started = next(line for line in world.wait(1) if "RebalanceStarted" in line)
    assert "[b-1]" in started


def test_the_longest_allowed_rebalance_timeout_limits_the_initial_window() -> None:
    """KIP-134: newcomers stretch the wait up to the rebalance timeout."""
    world = World(max_rebalance_timeout_ms=7_000)
    for n in range(8):
        world.enter(f"m{n}", rebalance=DAYS_24)
        world.wait(1_000)
    assert world.answers["m0.join#2"].generation_id == 1


def test_the_group_s_record_keeps_what_was_asked_for() -> None:
    """Another broker, or this one with another bound, reads it."""
    world = stable(DAYS_24, 20_000, max_rebalance_timeout_ms=90_000)
    members = world.coordinator._registry.groups[GroupId("g")].metadata({}).members
    assert [m.rebalance_timeout_ms for m in members] == [DAYS_24, 20_000]
